import { readdirSync, readFileSync } from 'node:fs'

/** Command lines of live processes that have to do with a folder: by their arguments or by their environment. */
export function leftovers(folder: string): readonly string[] {
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
  return processes.flatMap((pid) => {
    const commandLine = readProc(pid, 'cmdline')
    const isOurs = `${commandLine} ${readProc(pid, 'environ')}`.includes(folder)
    return isOurs && commandLine !== '' ? [commandLine] : []
  })
}

function readProc(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}
