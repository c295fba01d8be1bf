import { execFile } from 'node:child_process'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

const listMaxMs = 5_000

/** The process that `postmaster.pid` names: the server's first process, running or not. */
export function readPostmasterPid(folder: string): Promise<number | undefined> {
  return readPid(join(folder, 'postmaster.pid'))
}

/** The process that the lock file of the socket names: the same, unless a start got only half way. */
export function readSocketPid(folder: string): Promise<number | undefined> {
  return readPid(join(folder, '.s.PGSQL.5432.lock'))
}

async function readPid(file: string): Promise<number | undefined> {
  try {
    const [firstLine] = (await readFile(file, 'utf8')).split('\n')
    const pid = Number.parseInt(firstLine!, 10)
    return pid > 0 ? pid : undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/**
 * Whether that process is the server of this folder. A number proves nothing: after a crash it may belong to any other
 * process, to a thread (Linux answers for those too) or to a dead child that nobody has collected.
 */
export async function isPostmasterOf(pid: number, folder: string): Promise<boolean> {
  const commandLine = process.platform === 'linux' ? await fromProc(pid) : await fromProcessList(pid)
  return commandLine.includes(`/postgres -D ${folder} `)
}

/**
 * Ends what a killed server has left behind. Such a process leaves by itself, unless it waits for another that was killed
 * with the server: then it waits for ever, and PostgreSQL starts no server beside it. Only on Linux can they be found.
 */
export async function endOrphans(folder: string): Promise<void> {
  if (process.platform !== 'linux') return
  for (const pid of (await readdir('/proc')).map(Number)) {
    if (pid > 0 && (await isOrphanOf(pid, folder))) process.kill(pid, 'SIGKILL')
  }
}

/** Each process of a server is at home in its folder, and a child of its first one while that lives. */
async function isOrphanOf(pid: number, folder: string): Promise<boolean> {
  const home = await readlink(`/proc/${pid}/cwd`).catch(() => undefined)
  if (home !== folder || !/^postgres: |\/postgres -D /.test(await fromProc(pid))) return false
  const [, parent] = /\nPPid:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')) ?? []
  return !(await isPostmasterOf(pid, folder)) && !(await isPostmasterOf(Number(parent), folder))
}

/** Empty when there is no such process, or when it is dead and only not collected yet. */
async function fromProc(pid: number): Promise<string> {
  try {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH') return ''
    throw error
  }
}

async function fromProcessList(pid: number): Promise<string> {
  try {
    const { stdout } = await execute('ps', ['-ww', '-o', 'args=', '-p', String(pid)], { timeout: listMaxMs })
    return stdout
  } catch (error) {
    // `ps` leaves with 1 when it finds no such process.
    if ((error as { code?: unknown }).code === 1) return ''
    throw error
  }
}
