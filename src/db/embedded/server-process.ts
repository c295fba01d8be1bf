import { type ChildProcess, spawn } from 'node:child_process'
import { copyFile, open, stat, statfs, truncate } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import type { Cluster } from './cluster.ts'
import { isPostmasterOf, readPostmasterPid, readSocketPid } from './postmaster.ts'
import { cleanEnvironment, commandAs } from './run-as.ts'

/** A server that this process started. It keeps running when this process dies. */
export type ServerProcess = {
  /** How it ended; undefined while it runs. */
  ending(): Promise<Ending | undefined>
  /** For a server that no service owns yet: a fast shutdown, then an immediate one when that takes too long. */
  stop(): Promise<void>
}

export type Ending = {
  readonly reason: string
  /** Whether a retry may succeed. */
  readonly isTransient: boolean
  /** Processes of a killed server still exist. */
  readonly isBlocked?: boolean
}

const stopMsMax = 10_000
const stopPollMs = 50
const logBytesMax = 16 * 1024 * 1024
const lastWordsBytesMax = 16 * 1024

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
  cluster_name: 'penny',
  // The operator reads this log: it must not contain the text of statements or the rows they failed on.
  log_timezone: 'UTC',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
}

/** Starts PostgreSQL in its own session: a Ctrl-C in the terminal reaches only us, and we shut it down cleanly. */
export async function startServerProcess(cluster: Cluster): Promise<ServerProcess> {
  const { binaries, runAs, folder, logFile } = cluster
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const [program, args] = commandAs(runAs, binaries.postgres, ['-D', folder, ...flags])
  const env = { ...cleanEnvironment, ...(await disownStalePid(folder)) }
  await trimServerLog(logFile)
  const log = await open(logFile, 'a', 0o600)
  try {
    const { size } = await log.stat()
    const stdio: ['ignore', number, number] = ['ignore', log.fd, log.fd]
    const child = spawn(program, args, { ...runAs.become, cwd: '/', env, detached: true, stdio })
    child.unref()
    return follow(child, logFile, size)
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

/**
 * Moves the content of a large log to `.1`, even while the server is running. The server keeps the file open for appending, so the file
 * is copied and emptied, not renamed. Lines written in between are lost.
 */
export async function trimServerLog(logFile: string, bytesMax = logBytesMax): Promise<void> {
  const size = await stat(logFile).then(
    (found) => found.size,
    () => 0,
  )
  if (size <= bytesMax) return
  await copyFile(logFile, `${logFile}.1`)
  await truncate(logFile)
}

function follow(child: ChildProcess, logFile: string, logStart: number): ServerProcess {
  let failure: Error | undefined
  child.once('error', (error) => {
    failure = error
  })
  return {
    async ending() {
      if (failure !== undefined) return { reason: failure.message, isTransient: false }
      if (child.signalCode !== null) return { reason: `it was killed by ${child.signalCode}`, isTransient: true }
      if (child.exitCode === null) return undefined
      const reason = (await fatalLine(logFile, logStart)) ?? `it exited with code ${child.exitCode}`
      // On a full disk, the final log line may not have been written either.
      const isBlocked = blocked.test(reason)
      return { reason, isBlocked, isTransient: isBlocked || notYet.test(reason) || (await isFull(logFile)) }
    },
    async stop() {
      const hasEnded = () => failure !== undefined || child.exitCode !== null || child.signalCode !== null
      child.kill('SIGINT')
      for (let waitedMs = 0; !hasEnded(); waitedMs += stopPollMs) {
        if (waitedMs >= stopMsMax) child.kill('SIGQUIT')
        await pause(stopPollMs)
      }
    },
  }
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
  const log = await open(logFile, 'r')
  try {
    const { size } = await log.stat()
    const start = Math.max(from, size - lastWordsBytesMax)
    const { buffer, bytesRead } = await log.read(Buffer.alloc(Math.max(0, size - start)), { position: start })
    const lines = buffer.toString('utf8', 0, bytesRead).trim().split('\n')
    const fatal = lines.findLast((line) => /(FATAL|PANIC):/.test(line) && !toClients.test(line))
    return (fatal ?? lines.at(-1))?.replace(/^.*(FATAL|PANIC):\s*/, '') || undefined
  } finally {
    await log.close()
  }
}
