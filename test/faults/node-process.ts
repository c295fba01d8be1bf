import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { FailpointName } from '../../src/process/failpoints.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'

export type NodeSettings = {
  readonly dataDir: string
  readonly databaseUrl: string
  readonly upstreamUrl: string
  readonly leaseMs: number
  readonly checkpointMs: number
  readonly drainMs: number
  /** Default: any free port. */
  readonly port?: number
  readonly shutdownDelayMs?: number
  /** Its wrong clock: milliseconds ahead, or `jumps` for hours back and forth all the time. */
  readonly clock?: number | 'jumps'
  readonly failpoint?: { readonly name: FailpointName; readonly reach: number } | undefined
  readonly environment?: Readonly<Record<string, string>>
}

/** One process of the service, started as an operator does: `penny start`. */
export type NodeProcess = {
  /** Its node id in the ledger. */
  readonly id: string
  readonly port: number
  readonly exited: Promise<Exit>
  signal(signal: NodeJS.Signals): void
}

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null; readonly complaint: string }

const wrongClock = new URL('./wrong-clock.ts', import.meta.url).href
/** Only for a start that hangs: an exit is noticed immediately, and at a load of 20 a start took more than a minute. */
const readyMsMax = 5 * 60_000
const complaintMax = 4_000

/** The process, or its exit if it ended before it was ready: at a failpoint, or because the database was down. */
export async function startNode(settings: NodeSettings): Promise<NodeProcess | Exit> {
  const clock = settings.clock === undefined ? [] : ['--import', wrongClock]
  const child = spawn(process.execPath, [...clock, ...pennyProgram(), 'start', '--json'], {
    env: environmentOf(settings),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  // If this run is aborted, no process is left behind.
  const abandon = () => void child.kill('SIGKILL')
  process.once('exit', abandon)
  const exited = watch(child).finally(() => process.off('exit', abandon))
  const killer = setTimeout(() => child.kill('SIGKILL'), readyMsMax)
  const first = await Promise.race([once(child.stdout!, 'data'), exited])
  clearTimeout(killer)
  if (!Array.isArray(first)) return first
  const { base_url: baseUrl } = JSON.parse(String(first[0])) as { base_url: string }
  return {
    id: await nodeIdOf(settings.dataDir, child.pid!),
    port: Number(new URL(baseUrl).port),
    exited,
    signal: (signal) => void child.kill(signal),
  }
}

export function isRunning(node: NodeProcess | Exit): node is NodeProcess {
  return 'port' in node
}

function environmentOf(settings: NodeSettings): Record<string, string> {
  const { failpoint } = settings
  return {
    ...childEnvironment,
    DATA_DIR: settings.dataDir,
    PORT: String(settings.port ?? 0),
    DATABASE_URL: settings.databaseUrl,
    ROLES: 'web',
    SEARCH_PROVIDER: 'none',
    UNSETTLED_CAP_USDC: '1000000',
    UPSTREAM_BASE_URL: settings.upstreamUrl,
    LEASE_MS: String(settings.leaseMs),
    CHECKPOINT_MS: String(settings.checkpointMs),
    DRAIN_MS: String(settings.drainMs),
    SHUTDOWN_DELAY_MS: String(settings.shutdownDelayMs ?? 0),
    LOG_LEVEL: 'fatal',
    ...(settings.clock !== undefined && { WRONG_CLOCK: String(settings.clock) }),
    ...(failpoint && { FAILPOINT: `${failpoint.name}:${failpoint.reach}` }),
    ...settings.environment,
  }
}

async function watch(child: ChildProcess): Promise<Exit> {
  let complaint = ''
  child.stderr!.on('data', (text) => {
    complaint = (complaint + text).slice(-complaintMax)
  })
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  return { code, signal, complaint }
}

/** Each process writes its node id and pid into its data folder. */
async function nodeIdOf(dataDir: string, pid: number): Promise<string> {
  const folder = join(dataDir, 'nodes')
  for (const id of await readdir(folder)) {
    const note = JSON.parse(await readFile(join(folder, id), 'utf8')) as { pid: number }
    if (note.pid === pid) return id
  }
  throw new Error(`process ${pid} has left no note in ${folder}`)
}
