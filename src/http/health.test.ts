import assert from 'node:assert/strict'
import { appendFile, cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { migrate } from '../db/migrate.ts'
import { findProblems, type Health, HealthHistory, type Problems, Readiness } from './health.ts'

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))

test('a node stays ready after its successor has migrated the database, also when only a function changed', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  const successor = await mkdtemp(join(tmpdir(), 'penny-migrations-'))
  atEnd(t, () => rm(successor, { recursive: true }))
  await cp(migrations, successor, { recursive: true })
  await appendFile(join(successor, 'functions', 'place_holds.sql'), '-- changed\n')
  assert.deepEqual(await findProblems(database, successor), { migrations: 'not applied: 1 function' })
  await migrate(database, successor)
  assert.deepEqual(await findProblems(database, migrations), {})
})

test('under any number of readiness checks, the database is queried at most once a second, one query at a time', async () => {
  let nowMs = 0
  let looks = 0
  let answer = Promise.withResolvers<Problems>()
  const look = () => {
    looks += 1
    return answer.promise
  }
  const readiness = new Readiness({ look, onError: () => assert.fail(), now: () => nowMs })
  const many = Array.from({ length: 50 }, () => readiness.problems())
  nowMs += 5_000
  const later = readiness.problems()
  assert.equal(looks, 1)
  answer.resolve({ ledger: 'frozen' })
  for (const found of [...many, later]) assert.deepEqual(await found, { ledger: 'frozen' })
  nowMs += 999
  answer = Promise.withResolvers()
  answer.resolve({})
  assert.deepEqual([await readiness.problems(), looks], [{ ledger: 'frozen' }, 1])
  nowMs += 1
  assert.deepEqual([await readiness.problems(), looks], [{}, 2])
})

test('unauthenticated clients learn that the database does not answer; only the log says why', async () => {
  const errors: unknown[] = []
  const failure = new Error('no pg_hba.conf entry for host "10.0.0.7", user "penny", database "books"')
  let nowMs = 0
  let isAway = true
  const look = async () => {
    if (isAway) throw failure
    return {}
  }
  const readiness = new Readiness({ look, onError: (error) => errors.push(error), now: () => nowMs })
  for (const _ of [1, 2]) assert.deepEqual(await readiness.problems(), { database: 'the database does not answer' })
  assert.deepEqual(errors, [failure])
  isAway = false
  nowMs += 1_000
  assert.deepEqual(await readiness.problems(), {})
})

const good: Health = { isReady: true, model: 'working', search: 'unused', chain: 'working', databaseMs: 2 }
const minute = 60_000

test('an outage of one minute is seen in the five minutes around it', () => {
  const history = new HealthHistory()
  history.record(good, 0)
  history.record({ ...good, isReady: false, model: 'failing', databaseMs: undefined }, minute)
  history.record({ ...good, search: 'working', databaseMs: 9 }, 2 * minute)
  history.record(good, 5 * minute)
  assert.deepEqual(history.slots, [
    {
      isReady: false,
      model: 'failing',
      search: 'working',
      chain: 'working',
      databaseMs: undefined,
      start: new Date(0),
    },
    { ...good, start: new Date(5 * minute) },
  ])
})

test('the history has 24 hours and no more, and no slot for the time that the service was down', () => {
  const history = new HealthHistory()
  for (let at = 0; at < 30 * 60; at += 1) history.record(good, at * minute)
  assert.equal(history.slots.length, 288)
  assert.deepEqual(history.slots[0]?.start, new Date(6 * 60 * minute))
  history.record(good, 40 * 60 * minute)
  assert.deepEqual(
    history.slots.slice(-2).map(({ start }) => start.getTime() / minute),
    [1795, 2400],
  )
})
