import type { Database } from '../db/database.ts'
import type { SettlementFailpoint } from '../failpoints.ts'
import { findPayments, type Payment, type PaymentNews, renewWindow, settlePayments } from '../ledger/settlements.ts'
import type { Address, Hex } from '../signer/address.ts'
import type { Signer } from '../signer/signer.ts'
import {
  type Authorization,
  authorizationOf,
  type PaidResource,
  type PaymentTerms,
  paymentPayload,
  paymentRequirements,
} from './authorization.ts'
import { eachOf } from './each-of.ts'
import type { Rail, Submission, Transfer } from './rail.ts'

export type SubmitParts = {
  readonly database: Database
  readonly signer: Signer
  readonly rail: Rail
  readonly terms: PaymentTerms
  readonly resource: PaidResource
  readonly failpoint: SettlementFailpoint
  /** Something that only a person can put right. */
  readonly onAlarm: (what: string, details: object) => void
}

const paymentsMax = 256
const atOnceMax = 16
const windowMarginMs = 12 * 60 * 60 * 1000
const windowMs = 8 * 24 * 60 * 60 * 1000
const gatewayNeedsMs = 7 * 24 * 60 * 60 * 1000

/**
 * Signs the payments of ended requests and hands them in. Whatever becomes of a call, the next one uses the same nonce and
 * the same bytes, and after an unknown outcome the gateway is asked first: a payment is made once. Returns how many were
 * looked at.
 */
export async function submitPayments(parts: SubmitParts): Promise<number> {
  const payments = await findPayments(parts.database, ['allocated', 'signed', 'submitted', 'unknown'], 0, paymentsMax)
  if (payments.length === 0) return 0
  const news: PaymentNews[] = []
  const fresh: Payment[] = []
  await eachOf(payments, atOnceMax, async (payment) => {
    const ready = await withOpenWindow(parts, payment).catch((error: Error) => error)
    if (ready instanceof Error) news.push({ payment, state: payment.state, reason: ready.message })
    else fresh.push(ready)
  })
  const authorizations = fresh.map((payment) => authorizationOf(decisionOf(payment), parts.terms)!)
  const outcomes = await parts.signer.signAuthorizations(authorizations)
  parts.failpoint('after_sign')
  await eachOf(fresh, atOnceMax, async (payment, index) => {
    const outcome = outcomes[index]!
    if ('refusal' in outcome) {
      parts.onAlarm('the signer refuses a payment', { payment: payment.id, reason: outcome.refusal.message })
      news.push({ payment, state: payment.state, reason: `signer: ${outcome.refusal.reason}` })
    } else news.push(await submit(parts, payment, authorizations[index]!, outcome.signature))
  })
  parts.failpoint('after_submit')
  await settlePayments(parts.database, news)
  return payments.length
}

async function submit(
  parts: SubmitParts,
  payment: Payment,
  authorization: Authorization,
  signature: Hex,
): Promise<PaymentNews> {
  const { rail, terms, resource } = parts
  if (payment.state === 'unknown') {
    const { from, nonce } = authorization.message
    const found = await rail.findTransfer(from, nonce).catch((error: Error) => error)
    if (found instanceof Error) return { payment, state: 'unknown', reason: found.message }
    if (found !== undefined) return adopt(parts, payment, authorization, found)
  }
  const payload = {
    ...paymentPayload(authorization, signature, terms, resource),
    extensions: { receipt: { hash: payment.receiptHash } },
  }
  const answer = await rail.settle(payload, paymentRequirements(authorization, terms))
  return readAnswer(parts, payment, authorization, answer)
}

async function readAnswer(
  parts: SubmitParts,
  payment: Payment,
  authorization: Authorization,
  answer: Submission,
): Promise<PaymentNews> {
  if (answer.state === 'received') return { payment, state: 'received', railId: answer.id }
  if (answer.state === 'unknown') return { payment, state: 'unknown', reason: answer.reason }
  const { from, nonce } = authorization.message
  const found = await parts.rail.findTransfer(from, nonce).catch(() => 'unknown' as const)
  if (found === 'unknown') return { payment, state: 'unknown', reason: answer.reason }
  if (found !== undefined) return adopt(parts, payment, authorization, found)
  if (answer.reason === 'nonce_already_used') {
    // Something of ours has settled that it cannot show. What it was decides whether this is paid: a case for a person.
    parts.onAlarm('a nonce of ours was used, and the gateway does not say for what', { payment: payment.id, nonce })
    return { payment, state: 'unknown', reason: answer.reason }
  }
  // The gateway has nothing of it. It is offered again: with the balance there, the clock right, the settings mended, it
  // passes; until then the account's unsettled money is capped.
  parts.onAlarm('the gateway refuses a payment', { payment: payment.id, reason: answer.reason })
  return { payment, state: 'allocated', reason: answer.reason }
}

/** Ours when it pays the same to the same; anything else under our nonce is a case for a person, never for a second try. */
function adopt(parts: SubmitParts, payment: Payment, { message }: Authorization, found: Transfer): PaymentNews {
  if (found.to === message.to && found.amount === message.value) {
    return { payment, state: 'received', railId: found.id }
  }
  parts.onAlarm('a nonce of ours paid something else', {
    payment: payment.id,
    nonce: message.nonce,
    transfer: found.id,
  })
  return { payment, state: 'unknown', reason: 'nonce_conflict' }
}

/** The gateway wants seven days to be left. What waited too long gets a new window, once it is certain that it has none. */
async function withOpenWindow(parts: SubmitParts, payment: Payment): Promise<Payment> {
  const left = payment.authorizedAt.getTime() + windowMs - Date.now()
  if (left > gatewayNeedsMs + windowMarginMs) return payment
  const nonce = authorizationOf(decisionOf(payment), parts.terms)!.message.nonce
  const found = await parts.rail.findTransfer(payment.address as Address, nonce)
  if (found !== undefined) return payment
  parts.onAlarm('a payment waited so long that its window was renewed', { payment: payment.id })
  return { ...payment, authorizedAt: await renewWindow(parts.database, payment) }
}

function decisionOf(payment: Payment) {
  const { accountId, nonce, epoch, value, authorizedAt } = payment
  return { accountId, address: payment.address as Address, nonce, epoch, authorized: value, createdAt: authorizedAt }
}
