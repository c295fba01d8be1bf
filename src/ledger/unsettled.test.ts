import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, codeOf, hold, openLedger, openPayer, place, settle, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { fromAtomic } from '../money/usdc.ts'
import { setUnsettledCap } from './accounts.ts'
import { readBalance } from './balance.ts'
import type { Payer } from './hold-calls.ts'

const ledger = ledgerSuite()

const unsettledOf = async (payer: Payer) => (await readBalance(ledger.database, payer)).unsettled

test('unsettled is what was charged and is not final on chain, not what was quoted', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  const first = await hold(holds, payer, 300_054n)
  assert.equal(await unsettledOf(payer), 0n)
  await holds.end(charge(first, 26n))
  assert.equal(await unsettledOf(payer), 26n)
  const second = await hold(holds, payer, 1_000n)
  await holds.end(charge(second, 600n))
  await holds.end(voided(await hold(holds, payer, 1_000n)))
  assert.equal(await unsettledOf(payer), 626n)
  await settle(ledger.database, [payer], 'received')
  assert.equal(await unsettledOf(payer), 626n, 'on its way')
  await settleAgain(payer)
  assert.equal(await unsettledOf(payer), 0n)
  await holds.end(charge(await hold(holds, payer, 2_000n), 2_000n))
  assert.equal(await unsettledOf(payer), 2_000n)
  await assertBooksBalance(ledger.database)
})

test('a payment that failed leaves its charges unsettled until another one is final', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  await holds.end(charge(await hold(holds, payer, 10_000n), 4_000n))
  await settle(ledger.database, [payer], 'failed')
  assert.equal(await unsettledOf(payer), 4_000n)
  await assertBooksBalance(ledger.database)
  await holds.end(charge(await hold(holds, payer, 1_000n), 1_000n))
  assert.equal(await unsettledOf(payer), 5_000n)
  await settle(ledger.database, [payer], 'completed')
  assert.equal(await unsettledOf(payer), 0n)
  await assertBooksBalance(ledger.database)
})

// What the alarm for old charges looks at: a payment that fails again and again must not make them look young.
test('charges keep their age when their payment fails, and when a payment covers only those before them', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  for (const amount of [1_000n, 2_000n, 3_000n]) await holds.end(charge(await hold(holds, payer, amount), amount))
  const ended = await ledger.database.query<{ at: string }>(
    'select ended_at::text as at from requests where partition = $1 and account_id = $2 order by entry',
    [payer.partition, payer.accountId],
  )
  await settle(ledger.database, [payer], 'failed')
  assert.equal(await unpaidSince(payer), ended[0]!.at)
  const { partition, accountId } = payer
  await ledger.database.query(`select make_payments($1, array[$2::uuid], '{}', 2, 1000000, 0)`, [partition, accountId])
  assert.equal(await unpaidSince(payer), ended[2]!.at, 'the first two are covered')
  await settle(ledger.database, [payer], 'completed')
  await assertBooksBalance(ledger.database)
})

async function unpaidSince({ partition, accountId }: Payer): Promise<string | undefined> {
  const [row] = await ledger.database.query<{ at: string | null }>(
    'select unpaid_since::text as at from accounts where partition = $1 and id = $2',
    [partition, accountId],
  )
  return row!.at ?? undefined
}

test('requests are refused when charges pass the cap, not when quotes do', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000_000n)
  await setUnsettledCap(ledger.database, fromAtomic(900_000n))
  await holds.end(charge(await hold(holds, payer, 950_250n), 2_195n))
  await holds.end(charge(await hold(holds, payer, 950_000n), 900_000n))
  assert.equal(codeOf(await place(holds, payer, 1n)), 'settlement_delayed')
  await settle(ledger.database, [payer], 'completed')
  await holds.end(voided(await hold(holds, payer, 1n)))
})

async function settleAgain({ partition, accountId }: Payer): Promise<void> {
  const received = await ledger.database.query<{ number: bigint }>(
    `select number from payments where partition = $1 and account_id = $2 and state = 'received'`,
    [partition, accountId],
  )
  for (const { number } of received)
    await ledger.database.query(
      `select advance_payments($1, array[$2::uuid], array[($2, $3::bigint, 'completed', null, null, null, null, null, null, null, null)::payment_news])`,
      [partition, accountId, number],
    )
}
