import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { assertBooksClosed } from '../support/audit.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { findContradictions, type Row, readRows, type Seen } from './history.ts'
import { type Address, Load, openAccounts } from './load.ts'
import { type Generated, type ModelUpstream, startModelUpstream } from './model-upstream.ts'
import { isRunning, type NodeProcess, type NodeSettings, startNode } from './node-process.ts'
import { Random } from './random.ts'

// Processes are stopped while they serve clients, as in every deployment.

const clients = 12
const pace = { tokensMax: 60, tokenMs: 10, silenceMsMax: 100 }
const checkpointMs = 100
/** Of a node that is killed: its holds are ended this much later. */
const shortLeaseMs = 5_000
/** Of the others, with the time for a drain: neither may run out, however busy the machine is, and nothing waits for them. */
const patientMs = 60_000
const pollMs = 5
const folder = mkdtempSync(join(tmpdir(), 'penny-drain-'))
let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(async () => {
  try {
    await assertBooksClosed(ledger.database)
  } finally {
    await ledger.drop()
    rmSync(folder, { recursive: true, force: true })
  }
})

test('SIGTERM: requests in progress finish, new ones are refused, and the process exits with 0', async () => {
  const stage = await openStage(1)
  const [node] = stage.nodes
  await stage.underWay()
  stage.close(node!)
  // Wait until requests that were sent before have reached the upstream: later ones may be refused.
  while (stage.load.seen.some((seen) => seen.closedMs === undefined && !stage.upstream.generated.has(seen.name)))
    await pause(pollMs)
  node!.signal('SIGTERM')
  assert.equal((await node!.exited).code, 0)
  await assert.rejects(fetch(`http://127.0.0.1:${node!.port}/healthz`))
  const { held } = await stage.end()
  assert.ok(held.length >= clients)
  assert.deepEqual(held.filter(isLost), [])
})

test('SIGTERM: an invalid request during the drain gets an answer and affects no other', async () => {
  const stage = await openStage(1)
  const [node] = stage.nodes
  await stage.underWay()
  stage.close(node!)
  const broken = connect(node!.port, '127.0.0.1')
  let answer = ''
  broken.on('data', (bytes) => (answer += bytes))
  broken.write(unfinished(stage.apiKeys[0]!))
  // The server sent `100 Continue`: the request is in progress.
  await once(broken, 'data')
  node!.signal('SIGTERM')
  while (await answers(node!.port)) await pause(pollMs)
  broken.write('no length\r\n')
  await once(broken, 'close')
  assert.match(answer, /^HTTP\/1.1 400 /m)
  assert.equal((await node!.exited).code, 0)
  const { held } = await stage.end()
  assert.deepEqual(held.filter(isLost), [])
})

test('SIGTERM: requests that take longer than DRAIN_MS fail with an error, and the process exits with 0', async () => {
  const stage = await openStage(1, { drainMs: 0 })
  const [node] = stage.nodes
  await stage.underWay()
  stage.close(node!)
  node!.signal('SIGTERM')
  assert.equal((await node!.exited).code, 0)
  const { held } = await stage.end()
  const brokenOff = held.filter(({ seen, row }) => !seen.left && row.status === 'failed')
  assert.ok(brokenOff.some(({ row }) => row.charged > 0n))
  for (const { seen, row } of brokenOff) assert.deepEqual([seen.error, row.error], ['overloaded', 'overloaded'])
  assert.deepEqual(
    held.filter(({ seen, row }) => !seen.left && row.status === 'cancelled'),
    [],
  )
})

test('SIGTERM while the ledger is locked: no client gets an error for a request that is charged', async () => {
  // Longer than an end waits for the ledger while its client is connected.
  const drainMs = 11_000
  const stage = await openStage(1, { drainMs })
  const [node] = stage.nodes
  await stage.underWay()
  let drainedMs: number | undefined
  // Each attempt locks the ledger at another moment, until one is in the middle of a buffered answer.
  while (drainedMs === undefined) {
    drainedMs = await ledger.database.transaction(
      async (connection) => {
        await connection.query('select from accounts for update')
        if (!stage.isBuffering()) return undefined
        stage.close(node!)
        node!.signal('SIGTERM')
        const signalledMs = Date.now()
        await pause(drainMs + 1_500)
        return signalledMs + drainMs
      },
      { statementMaxMs: 2 * drainMs },
    )
  }
  assert.equal((await node!.exited).code, 0)
  const { held } = await stage.end()
  const late = held.filter(({ seen, row }) => !seen.stream && row.charged > 0n && row.endedMs! > drainedMs)
  assert.ok(late.length > 0, 'the ends of buffered answers waited until the drain was over')
})

test('SIGTERM, then SIGKILL during the drain: the next process ends the remaining requests', async () => {
  const stage = await openStage(1, { leaseMs: shortLeaseMs })
  const [node] = stage.nodes
  await stage.underWay()
  stage.close(node!)
  node!.signal('SIGTERM')
  node!.signal('SIGKILL')
  assert.equal((await node!.exited).signal, 'SIGKILL')
  const next = await stage.start(0)
  next.signal('SIGTERM')
  await next.exited
  const { held } = await stage.end()
  assert.ok(held.some(({ row }) => row.error === 'interrupted'))
})

test('four nodes restarted one after the other: no accepted request loses its answer or is charged twice', async () => {
  const stage = await openStage(4)
  for (const [index, node] of stage.nodes.entries()) {
    await stage.underWay()
    stage.close(node)
    node.signal('SIGTERM')
    assert.equal((await node.exited).code, 0)
    stage.open(await stage.start(index))
  }
  const { held } = await stage.end()
  assert.ok(held.length > clients)
  assert.deepEqual(held.filter(isLost), [])
})

/** A request that the ledger has, with what its client saw. */
type Held = { readonly seen: Seen; readonly row: Row }

function isLost({ seen }: Held): boolean {
  return !seen.whole && !seen.left
}

type Stage = {
  readonly nodes: readonly NodeProcess[]
  readonly apiKeys: readonly string[]
  readonly load: Load
  readonly upstream: ModelUpstream
  /** Whether clients are sent to this node. */
  open(node: NodeProcess): void
  close(node: NodeProcess): void
  /** Resolves when as many new streams as there are clients have begun. */
  underWay(): Promise<void>
  /** Whether the model is in the middle of a buffered answer, and its client waits for the end. */
  isBuffering(): boolean
  /** Starts a process on the data folder of the n-th node. */
  start(index: number): Promise<NodeProcess>
  /** Stops clients and nodes cleanly, and checks the ledger against what the clients saw. */
  end(): Promise<{ readonly held: readonly Held[] }>
}

/** The head of a request with a body that follows. */
function unfinished(apiKey: string): string {
  const headers = { host: 'penny', authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' }
  const lines = Object.entries({ ...headers, 'transfer-encoding': 'chunked', expect: '100-continue' })
  return `POST /v1/chat/completions HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
}

function answers(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/healthz`).then(
    () => true,
    () => false,
  )
}

async function openStage(nodeCount: number, { drainMs = patientMs, leaseMs = patientMs } = {}): Promise<Stage> {
  const upstream = await startModelUpstream(1, pace)
  const { accountIds, apiKeys } = await openAccounts(ledger.database, clients)
  const folderName = crypto.randomUUID()
  const start = (index: number) => startOne(join(folder, folderName, String(index)), upstream, { drainMs, leaseMs })
  const nodes = await Promise.all(Array.from({ length: nodeCount }, (_, index) => start(index)))
  const running = new Set(nodes)
  const taking = new Set(nodes)
  const address = (random: Random): Address | undefined => {
    if (taking.size === 0) return undefined
    const { port, id } = random.pick([...taking])
    return { port, node: id, proxied: false }
  }
  const load = new Load({ random: new Random(1), apiKeys, address, tokenMs: pace.tokenMs })
  return {
    nodes,
    apiKeys,
    load,
    upstream,
    start,
    open(node) {
      running.add(node)
      taking.add(node)
    },
    close(node) {
      running.delete(node)
      taking.delete(node)
    },
    async underWay() {
      const begun = () => [...upstream.generated.values()].flat().filter(({ tokens }) => tokens > 0).length
      const before = begun()
      while (begun() < before + clients) await pause(pollMs)
    },
    isBuffering() {
      const isUnfinished = ({ tokens, finishedMs, hungUp }: Generated) =>
        tokens > 0 && finishedMs === undefined && !hungUp
      return load.seen.some(
        ({ name, stream, hangUpAfterMs }) =>
          !stream && hangUpAfterMs === undefined && (upstream.generated.get(name) ?? []).some(isUnfinished),
      )
    },
    async end() {
      await load.stop()
      for (const node of running) node.signal('SIGTERM')
      for (const node of running) assert.equal((await node.exited).code, 0)
      await upstream.close()
      const rows = await readRows(ledger.database, accountIds)
      const history = { seen: load.seen, generated: upstream.generated, rows, checkpointTokensMax: 13 }
      assert.deepEqual(findContradictions(history), [])
      const rowOf = new Map(rows.map((row) => [row.name, row]))
      return { held: load.seen.flatMap((seen) => (rowOf.has(seen.name) ? [{ seen, row: rowOf.get(seen.name)! }] : [])) }
    },
  }
}

async function startOne(
  dataDir: string,
  upstream: ModelUpstream,
  { drainMs, leaseMs }: Pick<NodeSettings, 'drainMs' | 'leaseMs'>,
): Promise<NodeProcess> {
  const node = await startNode({
    dataDir,
    databaseUrl: ledger.url,
    upstreamUrl: upstream.url,
    leaseMs,
    checkpointMs,
    drainMs,
  })
  if (isRunning(node)) return node
  throw new Error(`a node does not start: ${node.complaint}`)
}
