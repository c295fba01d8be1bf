import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import type { Database } from '../../src/db/database.ts'
import { atEnd } from '../support/at-end.ts'
import { findContradictions, findViolations, readRows, type Seen } from './history.ts'
import { Load, openAccounts } from './load.ts'
import { type ModelUpstream, startModelUpstream } from './model-upstream.ts'
import { isRunning, type NodeProcess, type NodeSettings, startNode } from './node-process.ts'
import { retryUntilConnected } from './postgres-server.ts'
import { Random } from './random.ts'

const pace = { tokensMax: 40, tokenMs: 10, silenceMsMax: 100 }
const checkpointMs = 100
const leaseMs = 2_000
const pollMs = 20

export type StageOptions = {
  readonly database: Database
  readonly databaseUrl: string
  /** One per node: settings that differ from the defaults. */
  readonly nodes: readonly Partial<NodeSettings>[]
  readonly clients: number
}

/** Nodes under load, for tests that inject a fault. */
export type Stage = {
  readonly nodes: readonly NodeProcess[]
  readonly upstream: ModelUpstream
  readonly seen: readonly Seen[]
  /** Sends no more clients to this node. */
  close(node: NodeProcess): void
  /** Doubles the clients, with the same keys. */
  moreClients(): void
  /** Resolves after this many more complete answers. */
  untilAnswered(count: number): Promise<void>
  /** Resolves after this many more requests were refused as overloaded. */
  untilTurnedAway(count: number): Promise<void>
  /** Stops the clients. Resolves when each has finished its last request. */
  quiet(): Promise<void>
  /** Stops clients and nodes cleanly. Returns the problems found. */
  end(): Promise<readonly string[]>
}

export async function openStage(t: TestContext, options: StageOptions): Promise<Stage> {
  const { database } = options
  const upstream = await startModelUpstream(1, pace)
  atEnd(t, () => upstream.close())
  const { accountIds, apiKeys } = await openAccounts(database, options.clients)
  const nodes = await startNodes(t, options, upstream.url)
  const open = new Set(nodes)
  const address = (random: Random) => {
    const { port, id } = random.pick([...open])
    return { port, node: id, proxied: false }
  }
  const load = new Load({ random: new Random(1), apiKeys, address, tokenMs: pace.tokenMs })
  const untilMore = async (count: number, isMeant: (seen: Seen) => boolean) => {
    const before = load.seen.length
    while (load.seen.slice(before).filter(isMeant).length < count) await pause(pollMs)
  }
  return {
    nodes,
    upstream,
    seen: load.seen,
    close: (node) => void open.delete(node),
    moreClients: () => load.join(),
    untilAnswered: (count) => untilMore(count, ({ whole }) => whole),
    untilTurnedAway: (count) => untilMore(count, ({ status, error }) => status === 503 && error === 'overloaded'),
    quiet: () => load.stop(),
    async end() {
      await load.stop()
      for (const node of open) node.signal('SIGTERM')
      for (const node of open) assert.equal((await node.exited).code, 0)
      const rows = await retryUntilConnected(() => readRows(database, accountIds))
      const history = { seen: load.seen, generated: upstream.generated, rows, checkpointTokensMax: 13 }
      const wrong = load.seen.filter(({ status }) => status !== undefined && status !== 200 && status !== 503)
      return [
        ...findContradictions(history),
        ...(await findViolations(database)),
        ...wrong.map(({ status, error }) => `answered ${status} ${error}`),
      ]
    },
  }
}

async function startNodes(t: TestContext, options: StageOptions, upstreamUrl: string): Promise<readonly NodeProcess[]> {
  const folder = await mkdtemp(join(tmpdir(), 'penny-stage-'))
  atEnd(t, () => rm(folder, { recursive: true, force: true }))
  const { databaseUrl } = options
  const common = { databaseUrl, upstreamUrl, leaseMs, checkpointMs, drainMs: 10_000 }
  const starting = options.nodes.map(async (settings, index) => {
    const node = await startNode({ ...common, dataDir: join(folder, String(index)), ...settings })
    if (!isRunning(node)) throw new Error(`a node does not start: ${node.complaint}`)
    atEnd(t, () => node.signal('SIGKILL'))
    return node
  })
  return Promise.all(starting)
}
