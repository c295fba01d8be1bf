import assert from 'node:assert/strict'
import { test } from 'node:test'
import { payOnce } from './payment-key.ts'

test('a payment keeps its idempotency key until it is known to be made; the next one gets another', async () => {
  const sent: (string | undefined)[] = []
  const send = (outcome: () => void) =>
    payOnce('withdrawal.account.1', async ({ headers }) => {
      sent.push(headers['idempotency-key'])
      outcome()
    })
  const lose = () => {
    throw new Error('The answer was lost.')
  }
  await assert.rejects(send(lose))
  await assert.rejects(send(lose))
  await send(() => {})
  await send(() => {})
  const [first, second, third, fourth] = sent
  assert.ok(first !== undefined && first.length === 36)
  assert.deepEqual([second, third], [first, first])
  assert.notEqual(fourth, first)
})
