import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { isConnectionLost } from '../../src/db/database.ts'
import { startEmbeddedPostgres } from '../../src/db/embedded-postgres.ts'
import { atEnd } from '../support/at-end.ts'
import { PostgresServer } from './postgres-server.ts'
import { moveFolder, SmallDisk } from './small-disk.ts'
import { openStage } from './stage.ts'

// The disk of the database fills up while customers are served, and is freed a little later. Where nothing can be mounted,
// `no-room.test.ts` still tests how the service reacts to the database's error.

const clients = 8
const diskMegabytes = 160

for (const [what, place] of [
  ['the data of', 'data'],
  ['the write-ahead log of', 'log'],
] as const) {
  test(`a disk that is full of ${what} the database loses no money, and service resumes when there is space again`, async (t) => {
    const disk = await SmallDisk.mount(diskMegabytes)
    if ('refusal' in disk) {
      assert.notEqual(process.getuid?.(), 0, disk.refusal)
      t.diagnostic(`not shown on a real disk: ${disk.refusal}`)
      return
    }
    atEnd(t, () => disk.unmount())
    const postgres = await startOn(t, disk, place)
    const database = await postgres.createDatabase('stage')
    atEnd(t, () => database.close())
    const stage = await openStage(t, { database, databaseUrl: postgres.urlOf('stage'), nodes: [{}, {}], clients })

    await stage.untilAnswered(2 * clients)
    disk.fill()
    if (place === 'log') await exhaustLog(postgres)
    // Requests in progress wait for their charges until there is room. Only new requests are refused.
    for (let group = 0; group < 4; group += 1) stage.moreClients()
    await stage.untilTurnedAway(clients)
    disk.free()
    await stage.untilAnswered(2 * clients)
    assert.deepEqual(await stage.end(), [])
  })
}

/** A server with its data, or its write-ahead log, on the small disk. */
async function startOn(t: TestContext, disk: SmallDisk, place: 'data' | 'log'): Promise<PostgresServer> {
  const large = await mkdtemp(join(tmpdir(), 'penny-faults-'))
  await chmod(large, 0o711)
  atEnd(t, () => rm(large, { recursive: true, force: true }))
  const [dataDir, logDir] = place === 'data' ? [join(disk.folder, 'data'), large] : [join(large, 'data'), disk.folder]
  const prepared = await startEmbeddedPostgres({ dataDir })
  await prepared.stop()
  await moveFolder(join(dataDir, 'postgres', 'pg_wal'), join(logDir, 'pg_wal'))
  const postgres = await PostgresServer.start(dataDir)
  atEnd(t, () => postgres.stop())
  return postgres
}

/** Uses up the space that was allocated to the log before the disk was full: then the server cannot continue, and exits. */
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
