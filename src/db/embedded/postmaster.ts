import { execFile } from 'node:child_process'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

const listMaxMs = 5_000

/** A running server. */
export type Postmaster = {
  readonly pid: number
  /** Whether it accepts connections: it is neither starting nor stopping. */
  readonly isReady: boolean
  /** The process that started it. */
  readonly starter: string | undefined
}

/** The server that runs on the folder, also while it starts or stops. */
export async function findPostmaster(folder: string): Promise<Postmaster | undefined> {
  const lines = await readLockFile(folder, 'postmaster.pid')
  const pid = pidIn(lines)
  if (pid === undefined || !(await isPostmasterOf(pid, folder))) return undefined
  const [, starter] = starterName.exec(await commandLineOf(pid)) ?? []
  return { pid, isReady: lines[stateLine]?.trim() === 'ready', starter }
}

/** What a server's command line says about the process that started it. */
export const starterSetting = `cluster_name=penny-${process.pid}`
const starterName = / cluster_name=penny-(\d+)\b/

const stateLine = 7

/** The process id in `postmaster.pid`. The process may no longer run. */
export async function readPostmasterPid(folder: string): Promise<number | undefined> {
  return pidIn(await readLockFile(folder, 'postmaster.pid'))
}

/** The process id in the socket's lock file: the same one, unless a start failed half-way. */
export async function readSocketPid(folder: string): Promise<number | undefined> {
  return pidIn(await readLockFile(folder, '.s.PGSQL.5432.lock'))
}

function pidIn([first]: readonly string[]): number | undefined {
  const pid = Number.parseInt(first ?? '', 10)
  return pid > 0 ? pid : undefined
}

async function readLockFile(folder: string, name: string): Promise<readonly string[]> {
  return (await orMissing(readFile(join(folder, name), 'utf8'))).split('\n')
}

/**
 * Whether that process is the server of this folder. A process id alone proves nothing: after a crash it may belong to any other
 * process, to a thread (Linux answers for those too) or to a zombie.
 */
export async function isPostmasterOf(pid: number, folder: string): Promise<boolean> {
  return (await commandLineOf(pid)).includes(`/postgres -D ${folder} `)
}

/**
 * Kills processes that a killed server left behind; call it when no server runs. They normally exit, unless one waits for another that
 * was killed with the server: then it waits forever, and PostgreSQL refuses to start meanwhile. They can be found only on Linux.
 */
export async function endOrphans(folder: string): Promise<void> {
  if (process.platform !== 'linux') return
  for (const pid of (await readdir('/proc')).map(Number).filter((number) => number > 0)) {
    const workingFolder = await readlink(`/proc/${pid}/cwd`).catch(() => undefined)
    if (workingFolder === folder && (await commandLineOf(pid)).startsWith('postgres: ')) send(pid, 'SIGKILL')
  }
}

export function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    // It exited between the check and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Empty when there is no such process, or when it is a zombie. */
async function commandLineOf(pid: number): Promise<string> {
  if (process.platform === 'linux')
    return (await orMissing(readFile(`/proc/${pid}/cmdline`, 'utf8'))).replaceAll('\0', ' ')
  const options = { timeout: listMaxMs }
  return orMissing(execute('ps', ['-ww', '-o', 'args=', '-p', String(pid)], options).then(({ stdout }) => stdout))
}

/** Empty when the file or the process does not exist: `ps` then exits with 1. */
async function orMissing(reading: Promise<string>): Promise<string> {
  try {
    return await reading
  } catch (error) {
    if (['ENOENT', 'ESRCH', 1].includes((error as { code: string | number }).code)) return ''
    throw error
  }
}
