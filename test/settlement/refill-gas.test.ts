import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refillGas } from '../../src/settlement/refill-gas.ts'
import { pay, settleAll, settlementSuite } from '../support/settlement-bench.ts'
import { keys, terms } from '../support/signing.ts'

const bench = settlementSuite()
const gasMin = 1_000_000n
const relayer = keys.ofRole('relayer')

async function refill(gas: bigint): Promise<void> {
  const chain = { gasBalance: async () => gas * 10n ** 12n, gasPrice: async () => 20n * 10n ** 9n }
  await refillGas({ ...bench.parts, chain, relayer, sweepMin: 100_000n }, gasMin)
  await settleAll(bench)
}

async function revenue(): Promise<bigint> {
  return bench.gateway.balance(terms.seller)
}

test('gas is refilled once, and an alarm is raised when it does not arrive: a stalled node costs one refill', async () => {
  const account = await bench.openAccount(10_000_000n)
  for (let count = 0; count < 3; count += 1) {
    await pay(bench, account, 2_000_000n, 2_000_000n)
    await settleAll(bench)
  }
  const before = await revenue()
  for (let look = 0; look < 4; look += 1) await refill(0n)
  assert.equal(before - (await revenue()), gasMin)
  assert.equal(bench.gateway.paid.get(relayer.address), gasMin)
  const low = 'the relayer’s gas is still low after a refill'
  assert.deepEqual(bench.alarms, ['the relayer is short of gas', low, low, low])
  await refill(gasMin)
  assert.equal(bench.alarms.length, 4, 'nobody is called when there is enough')

  await bench.database.query(`update transfers set changed_at = changed_at - interval '1 hour' where kind = 'payout'`)
  await refill(0n)
  assert.equal(before - (await revenue()), 2n * gasMin, 'gas that was used up in an hour is refilled')
})

/** Accounts with money that waits to be swept. */
async function addWaiting(count: number): Promise<void> {
  await bench.database.query(
    `insert into arrivals (partition, account_id, block, log_index, tx_hash, sender, amount)
     select 0, gen_random_uuid(), n, 0, sha256(n::text::bytea), '0x', 100000 from generate_series(1, $1::integer) n`,
    [count],
  )
}

test('a refill pays for the sweeps that wait, up to five times the least one, and for less where the revenue is short', async () => {
  const account = await bench.openAccount(40_000_000n)
  const earn = async (amount: bigint) => {
    await pay(bench, account, amount, amount)
    await settleAll(bench)
  }
  const paid = async () => {
    const before = bench.gateway.paid.get(relayer.address) ?? 0n
    await bench.database.query(`update transfers set changed_at = changed_at - interval '1 hour' where kind = 'payout'`)
    await refill(0n)
    return (bench.gateway.paid.get(relayer.address) ?? 0n) - before
  }
  for (let count = 0; count < 10; count += 1) await earn(2_000_000n)
  await addWaiting(1_000)
  assert.equal(await paid(), 2_500_000n, '0.0025 USDC for each')
  await addWaiting(9_000)
  assert.equal(await paid(), 5n * gasMin)
  await bench.database.query('update arrivals set amount = 99999')
  assert.equal(await paid(), gasMin, 'what is too little to be swept needs no gas')
  await bench.database.query('update arrivals set amount = 100000')
  while ((await revenue()) >= 5n * gasMin) await paid()
  await earn(2_000_000n)
  assert.equal(await paid(), gasMin, 'as much as there is, when it is not enough for all')
})
