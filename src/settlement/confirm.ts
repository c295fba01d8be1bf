import type { Database } from '../db/database.ts'
import {
  advancePayments,
  findPaymentsByGatewayId,
  findPaymentsToConfirm,
  keepGatewayCursor,
  type Payment,
  type PaymentNews,
  readGatewayState,
  touchPayments,
} from '../ledger/payments.ts'
import { findX402ToConfirm } from '../ledger/x402-payments.ts'
import type { PaidResource, PaymentTerms } from './authorization.ts'
import { confirmX402 } from './confirm-x402.ts'
import type { GatewayClient, News } from './gateway-client.ts'
import { nameOf, newsOf } from './payment-news.ts'

export type ConfirmParts = {
  readonly database: Database
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  /** For what payments pay. */
  readonly resource: PaidResource
  readonly onAlarm: (what: string, details: object) => void
}

const paymentsMax = 512
const pagesMax = 20
/** Of a payment that the list of changes does not tell for so long the gateway is asked by its id. */
const overdueMs = 30_000

/**
 * Asks the gateway what has become of payments, and writes down what is new. Our own gateway tells everything that changed since a
 * cursor; at Circle's each payment is asked for, when nothing was heard of it for `untouchedMs`.
 *
 * The cursor is stored after what follows from the page. A change that is told before the payment's id is stored is passed over:
 * the payment is then found by its nonce, in the state that it has by then (`submitPayments`). What is passed over for any other
 * reason is asked for when it is overdue. Returns how many payments moved.
 */
export async function confirmPayments(parts: ConfirmParts, untouchedMs: number): Promise<number> {
  const { database, gatewayClient } = parts
  let { cursor, isUnderWay } = await readGatewayState(database)
  if (!isUnderWay) return 0
  const longMs = Math.max(untouchedMs, overdueMs)
  const due = { untouchedMs, overdueMs: longMs, rowsMax: paymentsMax }
  let asked = [...(await findPaymentsToConfirm(database, due)), ...(await findX402ToConfirm(database, due))]
  let moved = 0
  for (let page = 0; page < pagesMax; page += 1) {
    const news = await gatewayClient.news(cursor, asked).catch((error: Error) => error)
    if (news instanceof Error) {
      parts.onAlarm('the gateway does not say how payments stand', { err: news })
      return moved
    }
    moved += await writeDown(parts, news)
    moved += await confirmX402(parts, news)
    if (news.next !== undefined && news.next !== cursor) await keepGatewayCursor(database, news.next)
    if (!news.hasMore) return moved
    cursor = news.next
    asked = []
  }
  return moved
}

async function writeDown(parts: ConfirmParts, told: News): Promise<number> {
  const { database, onAlarm } = parts
  const { transfers, lost, unanswered, isRestarted } = told
  if (isRestarted) onAlarm('the gateway has another database: payments that it lost are handed in again', {})
  const byId = new Map(transfers.map((transfer) => [transfer.id, transfer]))
  const ids = [...byId.keys(), ...lost, ...unanswered]
  if (ids.length === 0) return 0
  const news: PaymentNews[] = []
  const unchanged: Payment[] = []
  for (const payment of await findPaymentsByGatewayId(database, ids)) {
    if (payment.state !== 'received' && payment.state !== 'batched') continue
    const transfer = byId.get(payment.gatewayId!)
    if (transfer !== undefined) {
      const item = newsOf(payment, transfer)
      if (item.state === payment.state) unchanged.push(payment)
      else news.push(item)
      if (item.state === 'failed') {
        onAlarm('a payment failed at the gateway', { ...nameOf(payment), reason: item.reason })
      }
    } else if (lost.includes(payment.gatewayId!)) {
      // It said that it had it. It is asked by nonce, and offered again only when it truly has nothing.
      onAlarm('the gateway has lost a payment', { ...nameOf(payment), transfer: payment.gatewayId })
      news.push({ payment, state: 'unknown', reason: 'lost by the gateway' })
    } else unchanged.push(payment)
  }
  const moved = await advancePayments(database, news)
  // A payment of which nothing is heard goes to the end of the queue: it holds up no other.
  await touchPayments(database, unchanged)
  if (unanswered.length > 0) onAlarm('the gateway does not say how payments stand', { unanswered: unanswered.length })
  return moved
}
