import { type ChildProcess, spawn } from 'node:child_process'
import { open, rename, stat, statfs } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import type { Cluster } from './cluster.ts'
import { isPostmasterOf, readPostmasterPid, readSocketPid } from './postmaster.ts'
import { cleanEnvironment, commandAs } from './run-as.ts'

/** A server that we have started; it lives on when we die. */
export type ServerProcess = {
  /** How it ended, undefined while it runs. */
  ending(): Promise<Ending | undefined>
  /** For a server that nobody owns yet: a fast shutdown, and an immediate one when that takes too long. */
  stop(): Promise<void>
}

export type Ending = {
  readonly reason: string
  /** Whether another start may succeed. */
  readonly mayPass: boolean
  /** Processes of a killed server are still there. */
  readonly isBlocked?: boolean
}

const stopMsMax = 10_000
const stopPollMs = 50
const logBytesMax = 16 * 1024 * 1024
const lastWordsBytesMax = 16 * 1024

// For two cores and little memory. Given on the command line, so that they hold whatever the folder's own files say.
const settings: Readonly<Record<string, string>> = {
  listen_addresses: '',
  port: '5432',
  unix_socket_directories: '.',
  unix_socket_permissions: '0700',
  fsync: 'on',
  full_page_writes: 'on',
  synchronous_commit: 'on',
  shared_buffers: '128MB',
  max_connections: '100',
  wal_compression: 'on',
  jit: 'off',
  timezone: 'UTC',
  cluster_name: 'penny',
  // The log is for the operator: neither the text of statements nor the rows they failed on belong in it.
  log_timezone: 'UTC',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
}

/** Starts PostgreSQL in a session of its own: a Ctrl-C at the terminal is for us, and we stop it in good order. */
export async function startServerProcess(cluster: Cluster): Promise<ServerProcess> {
  const { binaries, runAs, folder, logFile } = cluster
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const [program, args] = commandAs(runAs, binaries.postgres, ['-D', folder, ...flags])
  const env = { ...cleanEnvironment, ...(await disownStalePid(folder)) }
  const log = await openLog(logFile)
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
 * `postmaster.pid` of a killed server may name a process that is no server of this folder; PostgreSQL would then refuse
 * to start. We do not delete the file: it also names the shared memory by which PostgreSQL sees that backends of the
 * killed server still write here. Telling PostgreSQL that the number is its grandparent's (what `pg_ctl` does for a
 * shell) makes it pass over the number alone and keep that second check.
 */
async function disownStalePid(folder: string): Promise<Record<string, string>> {
  const pid = (await readPostmasterPid(folder)) ?? (await readSocketPid(folder))
  if (pid === undefined || (await isPostmasterOf(pid, folder))) return {}
  return { PG_GRANDPARENT_PID: String(pid) }
}

async function openLog(logFile: string) {
  const size = await stat(logFile).then(
    (found) => found.size,
    () => 0,
  )
  if (size > logBytesMax) await rename(logFile, `${logFile}.1`)
  return open(logFile, 'a', 0o600)
}

function follow(child: ChildProcess, logFile: string, logStart: number): ServerProcess {
  let failure: Error | undefined
  child.once('error', (error) => {
    failure = error
  })
  return {
    async ending() {
      if (failure !== undefined) return { reason: failure.message, mayPass: false }
      if (child.signalCode !== null) return { reason: `it was ended by ${child.signalCode}`, mayPass: true }
      if (child.exitCode === null) return undefined
      const reason = (await lastWords(logFile, logStart)) ?? `it left with ${child.exitCode}`
      // On a full disk its last words may not have found room either.
      const isBlocked = blocked.test(reason)
      return { reason, isBlocked, mayPass: isBlocked || notYet.test(reason) || (await isFull(logFile)) }
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

/** What a server says that cannot start yet: the one before it is not quite gone, or there is no room. */
const notYet = /lock file .* (already exists|is empty)|No space left on device/
/** A backend of the one before it is not gone. */
const blocked = /pre-existing shared memory block/

// A segment of the write-ahead log: with less than that free nothing can be promised to anybody.
const freeBytesMin = 16 * 1024 * 1024

async function isFull(file: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(file)
  return bavail * bsize < freeBytesMin
}

/** What it says to clients that it turns away: not why it ended. */
const toClients = /terminating connection|the database system is/

/** The line with which a server that does not start says why. */
async function lastWords(logFile: string, from: number): Promise<string | undefined> {
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
