import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { CitusServers } from './citus-servers.ts'
import { Coverage, mustHit } from './coverage.ts'
import { PostgresServer } from './postgres-server.ts'
import { runRound } from './runner.ts'

// A small form of `npm run faults`. `npm run test:full` injects each fault at least once, and reaches each failpoint twice; chance
// decides which state of a request a fault hits, and only the long form requires all of them. FAULT_SEED repeats a run.

const isOnCluster = process.env.TEST_CITUS_WORKERS !== undefined
/** On a cluster a start takes longer, and so does a server's return. */
const fullSize = isOnCluster ? { kills: 30, postgresKills: 9 } : { kills: 40, postgresKills: 8 }
const size = {
  kills: exampleCount('FAULT_KILLS', { short: 5, full: fullSize.kills, all: 100 }),
  postgresKills: exampleCount('FAULT_POSTGRES_KILLS', { short: 1, full: fullSize.postgresKills, all: 20 }),
}

test('kills of the service and of the database, wherever they hit, neither lose nor make an atomic unit', async (t) => {
  const seed = seedOf('FAULT_SEED')
  const coverage = new Coverage()
  const postgres = isOnCluster ? await CitusServers.start() : await PostgresServer.start()
  atEnd(t, () => postgres.stop())
  const result = await runRound({ seed, size, nodes: 4, clients: 16, postgres, coverage, deliversWebhooks: false })
  t.diagnostic(`seed ${seed}: ${result.requests} requests, slowest end of an orphaned hold ${result.slowestEndMs} ms`)
  for (const line of coverage.table().split('\n')) t.diagnostic(line)
  const repeat = `npm run faults -- --seed ${seed} --rounds 1 --kills ${size.kills} --postgres-kills ${size.postgresKills}`
  assert.deepEqual(result.problems, [], repeat)
  assert.ok(result.kills >= size.kills && result.postgresKills >= size.postgresKills)
  if (size.kills < fullSize.kills) return
  const notDone = mustHit.map(([fault]) => fault).filter((fault) => !(coverage.counts[fault]!.faults > 0))
  assert.deepEqual(notDone, [], repeat)
})
