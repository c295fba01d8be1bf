import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refillGas } from '../../src/settlement/refill-gas.ts'
import { pay, settleAll, settlementSuite } from '../support/settlement-bench.ts'
import { keys, terms } from '../support/signing.ts'

const bench = settlementSuite()
const gasMin = 1_000_000n
const relayer = keys.ofRole('relayer')

async function refill(gas: bigint): Promise<void> {
  const chain = { gasBalance: async () => gas * 10n ** 12n }
  await refillGas({ ...bench.parts, chain, relayer }, gasMin)
  await settleAll(bench)
}

async function revenue(): Promise<bigint> {
  return bench.gateway.balance(terms.seller)
}

test('gas is refilled once, and a person is called when it does not show: a node that stands still costs one refill', async () => {
  const account = await bench.openAccount(10_000_000n)
  for (let count = 0; count < 3; count += 1) {
    await pay(bench, account, 2_000_000n, 2_000_000n)
    await settleAll(bench)
  }
  const before = await revenue()
  for (let look = 0; look < 4; look += 1) await refill(0n)
  assert.equal(before - (await revenue()), gasMin)
  assert.equal(bench.gateway.paid.get(relayer.address), gasMin)
  const low = 'the relayer’s gas is low though it was refilled'
  assert.deepEqual(bench.alarms, ['the relayer is short of gas', low, low, low])
  await refill(gasMin)
  assert.equal(bench.alarms.length, 4, 'nobody is called when there is enough')

  await bench.database.query(`update payouts set changed_at = changed_at - interval '1 hour'`)
  await refill(0n)
  assert.equal(before - (await revenue()), 2n * gasMin, 'gas that was used up in an hour is refilled')
})
