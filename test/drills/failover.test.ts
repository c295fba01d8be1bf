import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Database } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { findViolations, readRows, type Seen } from '../faults/history.ts'
import { Load, openAccounts } from '../faults/load.ts'
import { startModelUpstream } from '../faults/model-upstream.ts'
import { isRunning, type NodeProcess, startNode } from '../faults/node-process.ts'
import { childrenOf } from '../faults/postgres-server.ts'
import { Random } from '../faults/random.ts'
import { until } from '../support/until.ts'
import { drill, isWhole } from './drill.ts'
import { freePort } from './free-port.ts'
import {
  createServer,
  makeServerFolder,
  postgresEngine,
  runAsOther,
  type Server,
  startServer,
} from './postgres-server.ts'

// Two web processes serve from a primary with a streaming standby. The primary is killed under traffic and the standby promoted, as
// docs/guides/failover.md describes. The URL names the standby first: it has to be passed over until it is promoted.

const clients = isWhole ? 24 : 12
const answersBefore = isWhole ? 500 : 60
const answersAfter = isWhole ? 1_000 : 100
/** How far the asynchronous standby is behind when the primary dies. */
const lagMs = 1_000
/** Holds of requests that ended may stay for this long. */
const holdsMsMax = 60_000
const pace = { tokensMax: 40, tokenMs: 10, silenceMsMax: 100 }
const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))
const pollMs = 20

for (const mode of ['synchronous', 'asynchronous'] as const) {
  drill({
    engine: postgresEngine,
    tried: `failover to ${mode === 'synchronous' ? 'a' : 'an'} ${mode} standby under traffic`,
    async run({ path }, step) {
      await using stack = new AsyncDisposableStack()
      const pair = await Pair.start(dirname(realpathSync(path)), stack)
      const { accountIds, apiKeys } = await openAccounts(pair.primary.database, clients)
      if (mode === 'synchronous') await pair.waitForStandby()
      const upstream = await startModelUpstream(1, pace)
      stack.defer(() => upstream.close())
      const nodes = await startNodes(pair, upstream.url, stack)
      const address = (random: Random) => {
        const { port, id } = random.pick(nodes)
        return { port, node: id, proxied: false }
      }
      const load = new Load({ random: new Random(1), apiKeys, address, tokenMs: pace.tokenMs })
      await untilAnswered(load.seen, answersBefore)
      step(`${answersBefore} answers; killing the primary`)
      if (mode === 'asynchronous') await pair.stopReplication()
      const killedMs = Date.now()
      const acknowledged = new Set(load.seen.filter(({ whole }) => whole).map(({ requestId }) => requestId))
      const reopened = await pair.failOver(acknowledged)
      step('the standby is promoted')
      await untilAnswered(load.seen, answersAfter)
      step(`${answersAfter} more answers`)
      await load.stop()
      const stoppedMs = Date.now()
      const { database } = pair.standby
      await until(async () => (await openHolds(database)).length === 0 || Date.now() - stoppedMs > holdsMsMax)
      const left = (await openHolds(database)).length
      const rows = new Map((await readRows(database, accountIds)).map((row) => [requestIdOf(row.id), row]))
      const losses = load.seen.flatMap(({ whole, requestId, cost }) => {
        const lost = whole ? cost! - (rows.get(requestId!)?.charged ?? 0n) : 0n
        return lost === 0n ? [] : [lost]
      })
      const unitsLost = losses.reduce((sum, lost) => sum + lost, 0n)
      await stopNodes(nodes)
      assert.equal(left, 0, 'holds stay open')
      assert.deepEqual(await findViolations(database), [])
      assert.ok(
        losses.every((lost) => lost > 0n),
        'a client was charged more than its response said',
      )
      if (mode === 'synchronous') assert.deepEqual({ losses, reopened }, { losses: [], reopened: 0 })
      // Otherwise nothing was tried: the standby had everything.
      else assert.ok(reopened > 0, 'the standby lost no end')
      return [
        `${failed(load.seen).length} of ${load.seen.length} requests failed`,
        `${(outageMs(load.seen, killedMs) / 1_000).toFixed(1)} s without an answer`,
        `${reopened} ended requests open again, ${left} of all holds left`,
        `${losses.length} answers lost ${unitsLost} units`,
      ].join(', ')
    },
  })
}

/** A primary and its standby, on one machine. */
class Pair {
  readonly primary: Server
  readonly standby: Server
  readonly #programs: string

  static async start(programs: string, stack: AsyncDisposableStack): Promise<Pair> {
    const folder = makeServerFolder(stack)
    const [first, second] = [await freePort(), await freePort()]
    const places = { primary: join(folder, 'primary'), standby: join(folder, 'standby') }
    const primary = await createServer(programs, places.primary, first, stack)
    await migrate(primary.database, migrations)
    const source = ['-h', '127.0.0.1', '-p', String(first), '-U', 'penny']
    runAsOther(join(programs, 'pg_basebackup'), [...source, '-D', places.standby, '-R', '-X', 'stream', '-c', 'fast'])
    const standby = await startServer(programs, places.standby, second, stack)
    const isStreaming = async () => (await replication(primary)).includes('async')
    await until(isStreaming)
    return new Pair(programs, primary, standby)
  }

  private constructor(programs: string, primary: Server, standby: Server) {
    this.#programs = programs
    this.primary = primary
    this.standby = standby
  }

  get url(): string {
    return `postgresql://penny@127.0.0.1:${this.standby.port},127.0.0.1:${this.primary.port}/penny?target_session_attrs=read-write`
  }

  /** From now on a commit is acknowledged when the standby has it. */
  async waitForStandby(): Promise<void> {
    await this.primary.database.execute(`alter system set synchronous_standby_names = '*'`)
    await this.primary.database.execute('select pg_reload_conf()')
    await until(async () => (await replication(this.primary)).includes('sync'))
  }

  /** The standby falls behind. */
  async stopReplication(): Promise<void> {
    await this.standby.database.execute(`alter system set primary_conninfo = ''`)
    await this.standby.database.execute('select pg_reload_conf()')
    await until(async () => (await replication(this.primary)).length === 0)
    await pause(lagMs)
  }

  /** @returns how many requests that clients had seen the end of are open in the promoted server */
  async failOver(acknowledged: ReadonlySet<string | undefined>): Promise<number> {
    await killServer(this.primary)
    const held = (await openHolds(this.standby.database)).filter((id) => acknowledged.has(requestIdOf(id)))
    runAsOther(join(this.#programs, 'pg_ctl'), ['promote', '-w', '-D', this.standby.folder])
    return held.length
  }
}

/** `kill -9` of the server and of every process of it. */
async function killServer({ process: { pid } }: Server): Promise<void> {
  process.kill(pid!, 'SIGSTOP')
  for (const victim of [pid!, ...(await childrenOf(pid!))]) process.kill(victim, 'SIGKILL')
}

async function replication({ database }: Server): Promise<readonly string[]> {
  const rows = await database.query<{ state: string }>(
    `select sync_state as state from pg_stat_replication where state = 'streaming'`,
  )
  return rows.map(({ state }) => state)
}

async function openHolds(database: Database): Promise<readonly string[]> {
  return (await database.query<{ id: string }>('select id from holds')).map(({ id }) => id)
}

function requestIdOf(id: string): string {
  return `req_${id.replaceAll('-', '')}`
}

async function startNodes(pair: Pair, upstreamUrl: string, stack: AsyncDisposableStack) {
  const folder = mkdtempSync(join(tmpdir(), 'penny-failover-nodes-'))
  stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }))
  const times = { leaseMs: 15_000, checkpointMs: 2_000, drainMs: 10_000 }
  const starting = ['one', 'two'].map(async (name) => {
    const node = await startNode({ dataDir: join(folder, name), databaseUrl: pair.url, upstreamUrl, ...times })
    if (!isRunning(node)) throw new Error(`a node does not start: ${node.complaint}`)
    stack.defer(() => node.signal('SIGKILL'))
    return node
  })
  return Promise.all(starting)
}

async function stopNodes(nodes: readonly NodeProcess[]): Promise<void> {
  for (const node of nodes) node.signal('SIGTERM')
  for (const node of nodes) assert.equal((await node.exited).code, 0)
}

async function untilAnswered(seen: readonly Seen[], count: number): Promise<void> {
  const before = seen.length
  while (seen.slice(before).filter(({ whole }) => whole).length < count) await pause(pollMs)
}

function failed(seen: readonly Seen[]): readonly Seen[] {
  return seen.filter(({ whole, left }) => !whole && !left)
}

/** From the last answer before the primary's death, or the death itself, to the first one after it. */
function outageMs(seen: readonly Seen[], killedMs: number): number {
  const ended = seen.filter(({ whole }) => whole).map(({ closedMs }) => closedMs!)
  const gaps = ended.sort((one, other) => one - other).map((ms, index) => ms - (ended[index - 1] ?? ms))
  return Math.max(...gaps.filter((_, index) => ended[index]! > killedMs))
}
