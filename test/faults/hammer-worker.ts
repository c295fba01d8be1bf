import { openDatabase } from '../../src/db/database.ts'
import { charge, openLedger, place } from '../support/ledger.ts'
import type { HammerOrder, HammerResult } from './hammer.test.ts'

// One of several processes that compete for the same money. Every third hold that it gets is charged immediately, so that money becomes
// available while others ask for it; half of the rest are extended by the same amount.

process.once('message', async (order: HammerOrder) => {
  const database = openDatabase({ url: order.databaseUrl, poolMax: 4, applicationName: 'hammer' })
  const holds = await openLedger(database, { cap: order.cap })
  const result: HammerResult = { won: 0, refused: 0, charged: 0, extended: 0 }
  let next = 0
  const attempt = async () => {
    while (next++ < order.attempts) {
      const decision = await place(holds, order.payer, BigInt(order.quote))
      if ('refusal' in decision) {
        result.refused += 1
        continue
      }
      const turn = result.won++ % 6
      if (turn % 3 === 0) {
        await holds.end(charge(decision.hold, BigInt(order.quote)))
        result.charged += 1
      } else if (turn % 2 === 0) {
        const { requestId, payer, quote } = decision.hold
        if ((await holds.extend({ requestId, payer, total: quote })) === 'extended') result.extended += 1
      }
    }
  }
  await Promise.all(Array.from({ length: order.atOnce }, attempt))
  await database.close()
  process.send?.(result)
  process.disconnect?.()
})
