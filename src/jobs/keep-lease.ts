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
  /** The lease ran out before it was renewed: others may have ended this node's requests. */
  readonly onLapsed: () => void
  readonly onError: (error: unknown) => void
}

export type Lease = {
  /**
   * Renews the lease. False while other nodes cannot be told from dead ones: within one lease of finding that this one had expired.
   * The database was away, or this process slept, and living nodes may not have renewed theirs yet.
   */
  renew(): Promise<boolean>
  /** Gives the lease back: what this node still holds is free to be ended by others. */
  end(): Promise<void>
}

/**
 * Takes this node's lease and renews it three times in its length. The node also leaves a note in its data folder, so that
 * its successor there, or any sibling, knows at once that it is dead instead of waiting for the lease to run out.
 */
export async function keepLease(options: LeaseOptions): Promise<Lease> {
  const { database, node, leaseMs, dataDir, onLapsed, onError } = options
  await endLeasesOfTheDead(database, dataDir)
  await renewLease(database, node, leaseMs)
  const note = join(notesFolder(dataDir), node)
  await writeFile(note, JSON.stringify({ pid: process.pid, host: hostname() } satisfies Note))
  let lapsedMs = Number.NEGATIVE_INFINITY
  const renew = async () => {
    if (!(await renewLease(database, node, leaseMs))) {
      lapsedMs = performance.now()
      onLapsed()
    }
    return performance.now() - lapsedMs > leaseMs
  }
  const timer = setInterval(() => void renew().catch(onError), Math.ceil(leaseMs / 3))
  return {
    renew,
    async end() {
      clearInterval(timer)
      await endLease(database, node)
      await rm(note, { force: true })
    },
  }
}

type Note = { readonly pid: number; readonly host: string }

function notesFolder(dataDir: string): string {
  return join(dataDir, 'nodes')
}

/** Nodes that ran on this folder and whose process is gone. A pid that was given to another process only means waiting. */
async function endLeasesOfTheDead(database: Database, dataDir: string): Promise<void> {
  const folder = notesFolder(dataDir)
  await mkdir(folder, { recursive: true })
  for (const node of await readdir(folder)) {
    const note = await readNote(join(folder, node))
    if (note !== undefined && (note.host !== hostname() || isAlive(note.pid))) continue
    await endLease(database, node)
    await rm(join(folder, node), { force: true })
  }
}

/** Undefined when the note is not whole: its writer died over it. */
async function readNote(file: string): Promise<Note | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Note
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
