import assert from 'node:assert/strict'
import { test } from 'node:test'
import { charge, hold, openKey, openLedger, openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { otherGroup, readUsage } from './usage.ts'

const ledger = ledgerSuite()

test('of many keys the twenty with the highest charges are listed, the others summed, and nothing is lost', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 100_000n)
  const account = { partition: payer.partition, id: payer.accountId }
  const keyIds = await Promise.all(Array.from({ length: 23 }, () => openKey(ledger.database, account)))
  await Promise.all(
    keyIds.map(async (keyId, index) => {
      await holds.end(charge(await hold(holds, { ...payer, keyId }, 1_000n), BigInt(100 + index)))
    }),
  )
  const hourMs = 3_600_000
  const hour = Math.floor(Date.now() / hourMs) * hourMs
  const period = { from: new Date(hour - hourMs), to: new Date(hour + 2 * hourMs) }
  for (const granularity of ['minute', 'hour'] as const) {
    const steps = await readUsage(ledger.database, payer, { ...period, granularity }, 'key')
    const charged = Map.groupBy(steps, ({ group }) => group)
    const sumOf = (group: string) => charged.get(group)?.reduce((sum, { measures }) => sum + measures.charged, 0n)
    assert.equal(charged.size, 21)
    assert.deepEqual(
      keyIds.slice(3).map(sumOf),
      keyIds.slice(3).map((_, index) => BigInt(103 + index)),
    )
    assert.equal(sumOf(otherGroup), 100n + 101n + 102n)
  }
})
