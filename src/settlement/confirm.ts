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
import { type ConfirmParts, confirmX402 } from './confirm-x402.ts'
import { type GatewayTransfer, ledgerStateOf, type News } from './gateway-client.ts'

const paymentsMax = 512
const pagesMax = 20
/** The gateway is asked by id for payments that were not in its list of changes for this long. */
const overdueMs = 30_000

/**
 * Reads the state of payments from the gateway and records changes. Our own gateway lists everything that changed since a cursor;
 * Circle's is asked for each payment that was not updated for `untouchedMs`.
 *
 * The cursor is stored after the changes of its page. A change that arrives before the payment's gateway id is stored is skipped:
 * `submitPayments` then finds the payment by its nonce, in its current state. Other skipped payments are looked up once they are
 * overdue. Returns how many payments changed state.
 */
export async function confirmPayments(parts: ConfirmParts, untouchedMs: number): Promise<number> {
  const { database, gatewayClient } = parts
  let { cursor, isUnderWay } = await readGatewayState(database)
  if (!isUnderWay) return 0
  const longMs = Math.max(untouchedMs, overdueMs)
  let asked = await findPaymentsToConfirm(database, { untouchedMs, overdueMs: longMs, rowsMax: paymentsMax })
  let moved = 0
  for (let page = 0; page < pagesMax; page += 1) {
    const news = await gatewayClient.news(cursor, asked).catch((error: Error) => error)
    if (news instanceof Error) {
      parts.onAlarm('the gateway does not report the state of payments', { err: news })
      return moved
    }
    moved += await recordNews(parts, news)
    moved += await confirmX402(parts, news)
    if (news.next !== undefined && news.next !== cursor) await keepGatewayCursor(database, news.next)
    if (!news.hasMore) return moved
    cursor = news.next
    asked = []
  }
  return moved
}

async function recordNews(parts: ConfirmParts, { transfers, lost, unanswered, isRestarted }: News): Promise<number> {
  const { database, onAlarm } = parts
  if (isRestarted) onAlarm('the gateway has another database: payments that it lost are submitted again', {})
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
      // `unknown`: the gateway is asked by nonce, and the payment is submitted again only if it is really missing.
      onAlarm('the gateway has lost a payment', { ...nameOf(payment), transfer: payment.gatewayId })
      news.push({ payment, state: 'unknown', reason: 'lost by the gateway' })
    } else unchanged.push(payment)
  }
  const moved = await advancePayments(database, news)
  // Moves them to the end of the queue, so that they do not delay other payments.
  await touchPayments(database, unchanged)
  if (unanswered.length > 0)
    onAlarm('the gateway does not report the state of payments', { unanswered: unanswered.length })
  return moved
}

export function newsOf(payment: Payment, transfer: GatewayTransfer): PaymentNews {
  return {
    payment,
    state: ledgerStateOf(transfer.state),
    gatewayId: transfer.id,
    batch: transfer.batch,
    transactionHash: transfer.transactionHash,
    batchRoot: transfer.receipt?.root,
    batchProof: transfer.receipt?.proof,
    place: transfer.place,
    reason: transfer.state === 'failed' ? (transfer.reason ?? 'failed') : undefined,
  }
}

/** Identifies a payment in logs and alarms. */
export function nameOf({ accountId, number }: Pick<Payment, 'accountId' | 'number'>): object {
  return { account: accountId, payment: number.toString() }
}
