import assert from 'node:assert/strict'
import { test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { exampleCount, seedOf } from '../support/examples.ts'
import { Coverage, delivererFaults } from './coverage.ts'
import { PostgresServer } from './postgres-server.ts'
import { runRound } from './runner.ts'

// The short form of the webhook part of `npm run faults`: each failpoint of the deliverer, and some other deaths. FAULT_SEED repeats a run.

const size = {
  kills: exampleCount('FAULT_KILLS', { short: 12, full: 12, all: 40 }),
  postgresKills: exampleCount('FAULT_POSTGRES_KILLS', { short: 3, full: 3, all: 6 }),
}

test('no webhook event is lost or changed, whichever process is killed between request and receiver', async (t) => {
  const seed = seedOf('FAULT_SEED')
  const coverage = new Coverage()
  const postgres = await PostgresServer.start()
  atEnd(t, () => postgres.stop())
  const result = await runRound({ seed, size, nodes: 2, clients: 4, postgres, coverage, deliversWebhooks: true })
  t.diagnostic(`seed ${seed}: ${result.requests} requests, ${result.received} messages`)
  const repeat = `npm run faults -- --seed ${seed} --rounds 1 --nodes 2 --clients 4 --kills ${size.kills} --postgres-kills ${size.postgresKills}`
  assert.deepEqual(result.problems, [], repeat)
  assert.ok(result.received > 0)
  assert.deepEqual(
    delivererFaults.filter((fault) => coverage.counts[fault] === undefined),
    [],
    repeat,
  )
})
