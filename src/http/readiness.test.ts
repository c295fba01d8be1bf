import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Problems, Readiness } from './readiness.ts'

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
