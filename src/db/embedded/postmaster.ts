import { execFile } from 'node:child_process'
import { readdir, readFile, readlink, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

const listMaxMs = 5_000

/** The process id in `postmaster.pid`. The process may no longer run. */
export function readPostmasterPid(folder: string): Promise<number | undefined> {
  return readPid(join(folder, 'postmaster.pid'))
}

/** The process id in the socket's lock file: the same one, unless a start failed half-way. */
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
 * Whether that process is the server of this folder. A process id alone proves nothing: after a crash it may belong to any other
 * process, to a thread (Linux answers for those too) or to a zombie.
 */
export async function isPostmasterOf(pid: number, folder: string): Promise<boolean> {
  const commandLine = process.platform === 'linux' ? await fromProc(pid) : await fromProcessList(pid)
  return commandLine.includes(`/postgres -D ${folder} `)
}

/** Whether SIGSTOP or a terminal has suspended the process. Known only on Linux. */
export async function isSuspended(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return /^State:\s+T \(stopped\)/m.test(status)
}

/**
 * Kills processes that a killed server left behind. They normally exit, unless one waits for another that was killed with the server:
 * then it waits forever, and PostgreSQL refuses to start meanwhile. They can be found only on Linux.
 */
export async function endOrphans(folder: string): Promise<void> {
  if (process.platform !== 'linux') return
  const home = await realpath(folder)
  for (const pid of (await readdir('/proc')).map(Number)) {
    if (pid > 0 && (await isServerProcessOf(pid, home)) && !(await isOfLivingServer(pid, folder))) send(pid, 'SIGKILL')
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

/** Whether it is a process of a server on that folder: all of them use it as their working directory. */
async function isServerProcessOf(pid: number, home: string): Promise<boolean> {
  const folder = await readlink(`/proc/${pid}/cwd`).catch(() => undefined)
  return folder === home && /^postgres: |\/postgres -D /.test(await fromProc(pid))
}

/** Whether it is a live server, or the child of one. */
async function isOfLivingServer(pid: number, folder: string): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  const parent = Number(/\nPPid:\s+(\d+)/.exec(status)?.[1])
  return (await isPostmasterOf(pid, folder)) || (await isPostmasterOf(parent, folder))
}

/** Empty when there is no such process, or when it is a zombie. */
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
    // `ps` exits with 1 when it finds no such process.
    if ((error as { code?: unknown }).code === 1) return ''
    throw error
  }
}
