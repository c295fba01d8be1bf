import type { Database } from '../db/database.ts'
import { findPayments, type Payment, type PaymentNews, settlePayments, touchPayments } from '../ledger/settlements.ts'
import { eachOf } from './each-of.ts'
import type { Rail } from './rail.ts'

export type ConfirmParts = {
  readonly database: Database
  readonly rail: Rail
  readonly onAlarm: (what: string, details: object) => void
}

const paymentsMax = 512
const atOnceMax = 16

/**
 * Asks the gateway how the payments it has stand, and writes down what is new. A payment of which nothing is heard goes to
 * the end of the queue: it holds up no other. Returns how many moved.
 */
export async function confirmPayments(parts: ConfirmParts, untouchedMs: number): Promise<number> {
  const states = ['received', 'batched', 'confirmed'] as const
  const payments = await findPayments(parts.database, states, untouchedMs, paymentsMax)
  const news: PaymentNews[] = []
  const unchanged: Payment[] = []
  let unheard: Error | undefined
  await eachOf(payments, atOnceMax, async (payment) => {
    const transfer = await parts.rail.transfer(payment.railId!).catch((error: Error) => error)
    if (transfer === undefined) {
      // It said that it had it. It is asked by nonce, and offered again only when it truly has nothing.
      parts.onAlarm('the gateway has lost a payment', { payment: payment.id, transfer: payment.railId })
      news.push({ payment, state: 'unknown', reason: 'lost by the gateway' })
      return
    }
    if (transfer instanceof Error || transfer.state === payment.state) {
      if (transfer instanceof Error) unheard = transfer
      unchanged.push(payment)
      return
    }
    if (transfer.state === 'failed') {
      parts.onAlarm('a payment failed at the gateway', { payment: payment.id, reason: transfer.reason })
    }
    news.push({
      payment,
      state: transfer.state,
      batch: transfer.batch,
      transactionHash: transfer.transactionHash,
      receiptRoot: transfer.receipt?.root,
      receiptProof: transfer.receipt?.proof,
      place: transfer.place,
      reason: transfer.state === 'failed' ? (transfer.reason ?? 'failed') : undefined,
    })
  })
  await settlePayments(parts.database, news)
  await touchPayments(parts.database, unchanged)
  if (unheard !== undefined) parts.onAlarm('the gateway does not say how a payment stands', { err: unheard })
  return news.length
}
