import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Database } from '../db/database.ts'
import { endLease, renewLease } from '../ledger/nodes.ts'

export type LeaseOptions = {
  readonly database: Database
  readonly node: string
  readonly leaseMs: number
  readonly dataDir: string
  /** The lease expired before it was renewed: other nodes may have ended this node's requests. */
  readonly onLapsed: () => void
  readonly onError: (error: unknown) => void
}

export type Lease = {
  /**
   * Renews the lease. Returns whether nodes with an expired lease are dead. False for one lease period after the start and after finding
   * its own lease expired: the database may have been unreachable until now, so live nodes may not have renewed theirs yet.
   */
  renew(): Promise<boolean>
  /** Releases the lease: other nodes may end what this node still holds. */
  end(): Promise<void>
}

/**
 * Acquires this node's lease and renews it three times per period. Also writes a PID file to the data folder, so that the next process
 * there notices a dead node immediately instead of waiting for its lease to expire.
 */
export async function keepLease(options: LeaseOptions): Promise<Lease> {
  const { database, node, leaseMs, dataDir, onLapsed, onError } = options
  await releaseDeadLeases(database, dataDir)
  await renewLease(database, node, leaseMs)
  const pidFile = join(pidFolder(dataDir), node)
  await writeFile(pidFile, JSON.stringify({ pid: process.pid, host: hostname() } satisfies PidFile))
  // A node may start just after an outage, too.
  let doubtfulSinceMs = performance.now()
  const renew = async () => {
    if (!(await renewLease(database, node, leaseMs))) {
      doubtfulSinceMs = performance.now()
      onLapsed()
    }
    return performance.now() - doubtfulSinceMs > leaseMs
  }
  const timer = setInterval(() => void renew().catch(onError), Math.ceil(leaseMs / 3))
  return {
    renew,
    async end() {
      clearInterval(timer)
      await endLease(database, node)
      await rm(pidFile, { force: true })
    },
  }
}

type PidFile = { readonly pid: number; readonly host: string }

function pidFolder(dataDir: string): string {
  return join(dataDir, 'nodes')
}

/** Releases leases of nodes on this folder whose process has exited. If its PID was reused, the lease simply expires later. */
async function releaseDeadLeases(database: Database, dataDir: string): Promise<void> {
  const folder = pidFolder(dataDir)
  await mkdir(folder, { recursive: true })
  for (const node of await readdir(folder)) {
    const pidFile = await readPidFile(join(folder, node))
    if (pidFile !== undefined && (pidFile.host !== hostname() || isAlive(pidFile.pid))) continue
    await endLease(database, node)
    await rm(join(folder, node), { force: true })
  }
}

/** Undefined for an incomplete file, whose writer died. */
async function readPidFile(file: string): Promise<PidFile | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as PidFile
  } catch {
    return undefined
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return pid !== process.pid
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
