import { type ChildProcess, spawn } from 'node:child_process'
import { open, readFile, rename, stat, statfs } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { Cluster } from './cluster.ts'
import { isPostmasterOf, readPostmasterPid, readSocketPid, starterSetting } from './postmaster.ts'
import { cleanEnvironment, commandAs } from './run-as.ts'

/** A server that this process started. It shuts down when this process ends, even by `kill -9`. */
export type ServerProcess = {
  readonly pid: number | undefined
  /** How it ended. */
  readonly ended: Promise<Ending>
  /** A fast shutdown, then an immediate one when that takes too long: it loses nothing and costs a recovery at the next start. */
  stop(): Promise<void>
}

export type Ending = {
  readonly reason: string
  /** Whether a retry may succeed. */
  readonly isTransient: boolean
  /** Processes of a killed server still exist. */
  readonly isBlocked?: boolean
}

const fastStopMaxMs = 30_000
const immediateStopMaxMs = 10_000
const logBytesMax = 16 * 1024 * 1024

// For two cores and little memory. Passed on the command line, so that they override the folder's own files.
const settings: Readonly<Record<string, string>> = {
  listen_addresses: '',
  port: '5432',
  unix_socket_directories: '.',
  unix_socket_permissions: '0700',
  fsync: 'on',
  full_page_writes: 'on',
  synchronous_commit: 'on',
  shared_buffers: '128MB',
  // Enough for eight web processes.
  max_connections: '300',
  wal_compression: 'on',
  jit: 'off',
  timezone: 'UTC',
  // The operator reads this log: it must not contain the text of statements or the rows they failed on. Their errors are in the service's
  // own log; what remains is so little that the file is rotated only when the server starts.
  log_timezone: 'UTC',
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
}

/**
 * Becomes PostgreSQL, and leaves a process that reads its standard input, a pipe from us. At its end, when we have ended in whatever way,
 * that process shuts PostgreSQL down. A line says that there is nothing to shut down. A signal to all processes must not end the watch
 * alone: PostgreSQL takes that for the crash of a child.
 */
const program = `exec 3<&0
(trap "" HUP INT TERM; read -r ended <&3 || kill -INT $$) &
exec "$@" </dev/null 3<&-`

/** Starts PostgreSQL in its own session: a Ctrl-C in the terminal reaches only us, and we shut it down cleanly. */
export async function startServerProcess(cluster: Cluster): Promise<ServerProcess> {
  const { binaries, runAs, folder, logFile } = cluster
  const flags = [...Object.entries(settings).map(([name, value]) => `${name}=${value}`), starterSetting]
  const server = [binaries.postgres, '-D', folder, ...flags.flatMap((flag) => ['-c', flag])]
  const [command, args] = commandAs(runAs, '/bin/sh', ['-c', program, 'sh', ...server])
  const env = { ...cleanEnvironment, ...(await disownStalePid(folder)) }
  const logSize = await rotate(logFile)
  const log = await open(logFile, 'a', 0o600)
  try {
    const stdio: ['pipe', number, number] = ['pipe', log.fd, log.fd]
    const child = spawn(command, args, { ...runAs.become, cwd: '/', env, detached: true, stdio })
    return follow(child, logFile, logSize)
  } finally {
    await log.close()
  }
}

/**
 * After a crash, `postmaster.pid` may name a process that is not a server of this folder, and PostgreSQL would then refuse to
 * start. We do not delete the file: it also names the shared memory by which PostgreSQL detects backends of the killed server that
 * still write here. Claiming that the number is PostgreSQL's grandparent (as `pg_ctl` does for a shell) makes it ignore only the
 * number and keep that second check.
 */
async function disownStalePid(folder: string): Promise<Record<string, string>> {
  const pid = (await readPostmasterPid(folder)) ?? (await readSocketPid(folder))
  if (pid === undefined || (await isPostmasterOf(pid, folder))) return {}
  return { PG_GRANDPARENT_PID: String(pid) }
}

/** Renames a large log to `.1`. Returns the size of the log. */
async function rotate(logFile: string): Promise<number> {
  const { size } = await stat(logFile).catch(() => ({ size: 0 }))
  if (size <= logBytesMax) return size
  await rename(logFile, `${logFile}.1`)
  return 0
}

function follow(child: ChildProcess, logFile: string, logStart: number): ServerProcess {
  const input = child.stdin as Socket
  input.on('error', () => {})
  // Neither may keep a process running that is finished.
  input.unref()
  child.unref()
  const ended = new Promise<Ending>((resolve) => {
    child.once('error', ({ message }) => resolve({ reason: message, isTransient: false }))
    child.once('exit', () => {
      input.end('ended\n')
      resolve(endingOf(child, logFile, logStart))
    })
  })
  return {
    pid: child.pid,
    ended,
    async stop() {
      child.ref()
      const isGone = ended.then(() => true)
      for (const [signal, waitMaxMs] of [
        ['SIGINT', fastStopMaxMs],
        ['SIGQUIT', immediateStopMaxMs],
      ] as const) {
        child.kill(signal)
        if (await Promise.race([isGone, pause(waitMaxMs, false, { ref: false })])) return
      }
      throw new Error(`PostgreSQL (process ${child.pid!}) does not stop.`)
    },
  }
}

async function endingOf({ signalCode, exitCode }: ChildProcess, logFile: string, logStart: number): Promise<Ending> {
  if (signalCode !== null) return { reason: `it was killed by ${signalCode}`, isTransient: true }
  const reason = (await fatalLine(logFile, logStart)) ?? `it exited with code ${exitCode}`
  const isBlocked = blocked.test(reason)
  // On a full disk, the final log line may not have been written either.
  return { reason, isBlocked, isTransient: isBlocked || notYet.test(reason) || (await isFull(logFile)) }
}

/** Log lines of a server that cannot start yet: its predecessor is still exiting, or the disk is full. */
const notYet = /lock file .* (already exists|is empty)|No space left on device/
/** Log line when a backend of its predecessor still runs. */
const blocked = /pre-existing shared memory block/

// One segment of the write-ahead log: with less free space no commit is safe.
const freeBytesMin = 16 * 1024 * 1024

async function isFull(file: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(file)
  return bavail * bsize < freeBytesMin
}

/** Log lines about rejected clients: they do not say why the server ended. */
const toClients = /terminating connection|the database system is/

/** The log line in which a server says why it does not start. */
async function fatalLine(logFile: string, from: number): Promise<string | undefined> {
  const lines = (await readFile(logFile)).subarray(from).toString().trim().split('\n')
  const fatal = lines.findLast((line) => /(FATAL|PANIC):/.test(line) && !toClients.test(line))
  return (fatal ?? lines.at(-1))?.replace(/^.*(FATAL|PANIC):\s*/, '') || undefined
}
