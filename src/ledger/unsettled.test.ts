import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { charge, codeOf, hold, openLedger, openPayer, place, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { fromAtomic } from '../money/usdc.ts'
import { setUnsettledCap } from './accounts.ts'
import { readBalance } from './balance.ts'
import type { Hold, Payer } from './hold-calls.ts'
import { type SettlementState, settlePayments } from './settlements.ts'

const ledger = ledgerSuite()

const unsettledOf = async (payer: Payer) => (await readBalance(ledger.database, payer)).unsettled

async function settle({ requestId, payer }: Hold, state: SettlementState): Promise<void> {
  const { partition, accountId } = payer
  await settlePayments(ledger.database, [{ payment: { partition, id: requestId, accountId }, state }])
  await assertBooksBalance(ledger.database)
}

test('unsettled is what was charged and is not final on chain, not what was authorized', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  const first = await hold(holds, payer, 300_054n)
  assert.equal(await unsettledOf(payer), 0n)
  await holds.end(charge(first, 26n))
  assert.equal(await unsettledOf(payer), 26n)
  // Paid out of credit whose own payment is still under way: charged, and not settled.
  const second = await hold(holds, payer, 1_000n)
  assert.equal(await unsettledOf(payer), 26n)
  await holds.end(charge(second, 600n))
  assert.equal(await unsettledOf(payer), 626n)
  await holds.end(voided(await hold(holds, payer, 1_000n)))
  await settle(first, 'completed')
  assert.equal(await unsettledOf(payer), 0n)
  // What is final covers the next charges as well.
  await holds.end(charge(await hold(holds, payer, 2_000n), 2_000n))
  assert.equal(await unsettledOf(payer), 0n)
})

test('a payment that failed leaves its charges unsettled until another one is final', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  const first = await hold(holds, payer, 10_000n)
  await holds.end(charge(first, 4_000n))
  await settle(first, 'failed')
  assert.equal(await unsettledOf(payer), 4_000n)
  const second = await hold(holds, payer, 1_000n)
  await holds.end(charge(second, 1_000n))
  assert.equal(await unsettledOf(payer), 5_000n)
  await settle(second, 'completed')
  assert.equal(await unsettledOf(payer), 0n)
})

test('requests are refused when charges pass the cap, not when quotes do', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000_000n)
  await setUnsettledCap(ledger.database, fromAtomic(900_000n))
  const dear = await hold(holds, payer, 950_250n)
  await holds.end(charge(dear, 2_195n))
  const next = await hold(holds, payer, 950_000n)
  await holds.end(charge(next, 900_000n))
  assert.equal(codeOf(await place(holds, payer, 1n)), 'settlement_delayed')
  await settle(dear, 'completed')
  await holds.end(voided(await hold(holds, payer, 1n)))
})
