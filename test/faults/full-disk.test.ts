import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { isConnectionLost } from '../../src/db/database.ts'
import { startEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { findContradictions, findViolations, readRows } from './history.ts'
import { Load, openPurses } from './load.ts'
import { startModelUpstream } from './model-upstream.ts'
import { isRunning, type NodeProcess, startNode } from './node-process.ts'
import { PostgresServer, persistently } from './postgres-server.ts'
import { Random } from './random.ts'
import { moveFolder, SmallDisk } from './small-disk.ts'

// The disk of the database is full while customers are being served, and has room again a little later. Where nothing may be
// mounted, `no-room.test.ts` still shows what the service does when the database says that it has none.

const clients = 8
const pace = { tokensMax: 40, tokenMs: 10, silenceMsMax: 100 }
const checkpointMs = 100
const pollMs = 20
const diskMegabytes = 160

for (const [what, place] of [
  ['the data of', 'data'],
  ['the write-ahead log of', 'log'],
] as const) {
  test(`a disk that is full of ${what} the database costs nobody a unit, and service goes on when there is room again`, async (t) => {
    const disk = await SmallDisk.mount(diskMegabytes)
    if ('refusal' in disk) {
      assert.notEqual(process.getuid?.(), 0, disk.refusal)
      t.diagnostic(`not shown on a real disk: ${disk.refusal}`)
      return
    }
    t.after(() => disk.unmount())
    const postgres = await startOn(t, disk, place)
    const stage = await openStage(t, postgres)

    await stage.untilAnswered(2 * clients)
    disk.fill()
    if (place === 'log') await exhaustLog(postgres)
    await stage.untilTurnedAway(clients)
    disk.free()
    await stage.untilAnswered(2 * clients)
    assert.deepEqual(await stage.end(), [])
  })
}

/** A server whose data, or whose write-ahead log, is on the small disk; the other part is not. */
async function startOn(t: TestContext, disk: SmallDisk, place: 'data' | 'log'): Promise<PostgresServer> {
  const large = await mkdtemp(join(tmpdir(), 'penny-faults-'))
  await chmod(large, 0o711)
  t.after(() => rm(large, { recursive: true, force: true }))
  const [dataDir, logDir] = place === 'data' ? [join(disk.folder, 'data'), large] : [join(large, 'data'), disk.folder]
  const prepared = await startEmbeddedPostgres({ dataDir })
  await prepared.stop()
  await moveFolder(join(dataDir, 'postgres', 'pg_wal'), join(logDir, 'pg_wal'))
  const postgres = await PostgresServer.start(dataDir)
  t.after(() => postgres.stop())
  return postgres
}

/** Uses up what of the log was allotted before the disk was full: then the server cannot go on, and ends. */
async function exhaustLog(postgres: PostgresServer): Promise<void> {
  const database = postgres.open('stage', 1)
  try {
    for (;;) {
      await database.query("select pg_logical_emit_message(false, 'filler', repeat('x', 1000000)), pg_switch_wal()")
    }
  } catch (error) {
    if (!isConnectionLost(error)) throw error
  } finally {
    await database.close()
  }
}

type Stage = {
  /** Resolves when so many more answers have come whole. */
  untilAnswered(count: number): Promise<void>
  /** Resolves when so many more requests have been told to come back later. */
  untilTurnedAway(count: number): Promise<void>
  /** Everybody goes home in good order; returns what is wrong then. */
  end(): Promise<readonly string[]>
}

async function openStage(t: TestContext, postgres: PostgresServer): Promise<Stage> {
  const database = await postgres.createDatabase('stage')
  t.after(() => database.close())
  const upstream = await startModelUpstream(1, pace)
  t.after(() => upstream.close())
  const { accountIds, apiKeys } = await openPurses(database, clients)
  const files = await mkdtemp(join(tmpdir(), 'penny-faults-'))
  t.after(() => rm(files, { recursive: true, force: true }))
  const nodes = await Promise.all(
    [0, 1].map((index) => startOne(join(files, String(index)), postgres.urlOf('stage'), upstream.url)),
  )
  t.after(() => {
    for (const node of nodes) node.signal('SIGKILL')
  })
  const address = (random: Random) => {
    const { port, id } = random.pick(nodes)
    return { port, node: id, proxied: false }
  }
  const load = new Load({ random: new Random(1), apiKeys, address, tokenMs: pace.tokenMs })
  const untilMore = async (count: number, isMeant: (seen: Load['seen'][number]) => boolean) => {
    const before = load.seen.length
    while (load.seen.slice(before).filter(isMeant).length < count) await pause(pollMs)
  }
  return {
    untilAnswered: (count) => untilMore(count, ({ whole }) => whole),
    untilTurnedAway: (count) => untilMore(count, ({ status, error }) => status === 503 && error === 'overloaded'),
    async end() {
      await load.stop()
      for (const node of nodes) node.signal('SIGTERM')
      for (const node of nodes) assert.equal((await node.exited).code, 0)
      const rows = await persistently(() => readRows(database, accountIds))
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

async function startOne(dataDir: string, databaseUrl: string, upstreamUrl: string): Promise<NodeProcess> {
  const compileCache = join(dataDir, 'compile-cache')
  const settings = { dataDir, databaseUrl, upstreamUrl, leaseMs: 2_000, checkpointMs, drainMs: 10_000, compileCache }
  const node = await startNode(settings)
  if (isRunning(node)) return node
  throw new Error(`a node does not start: ${node.complaint}`)
}
