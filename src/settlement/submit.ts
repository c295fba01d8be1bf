import {
  advancePayments,
  chainRecoveredPayment,
  findPaymentsToSubmit,
  findRecoveredPayments,
  keepRoots,
  type Payment,
  type PaymentNews,
  renewWindow,
} from '../ledger/payments.ts'
import type { SettlementFailpoint } from '../process/failpoints.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Signer } from '../signer/signer.ts'
import { isWindowUsable } from '../signer/signing-terms.ts'
import { type Authorization, authorizationOf, type Return, submittalOf } from './authorization.ts'
import { nameOf, newsOf } from './confirm.ts'
import type { ConfirmParts } from './confirm-x402.ts'
import { eachOf } from './each-of.ts'
import type { GatewayTransfer, Submission } from './gateway-client.ts'
import { computeRoots } from './payment-receipt.ts'
import { isSame } from './transfers/rails.ts'

export type SubmitParts = ConfirmParts & { readonly signer: Signer; readonly failpoint: SettlementFailpoint }

const paymentsMax = 256
const concurrencyMax = 16

/**
 * Signs payments and submits them to the gateway. Every attempt has the same nonce and the same bytes, and after an unknown outcome the
 * gateway is asked first, so a payment is made once. Returns how many were processed.
 */
export async function submitPayments(parts: SubmitParts): Promise<number> {
  const payments = await findPaymentsToSubmit(parts.database, paymentsMax)
  if (payments.length === 0) return 0
  const { rooted, unrooted } = await withRoots(parts, payments)
  const news: PaymentNews[] = [...unrooted]
  // A payment of zero, or one that a wallet paid in advance, transfers nothing. It only covers its entries.
  const [toTransfer, closing] = [rooted.filter(needsTransfer), rooted.filter((payment) => !needsTransfer(payment))]
  news.push(...closing.map((payment) => ({ payment, state: 'completed' as const })))
  const { missing, present } = await findMissing(parts, toTransfer)
  news.push(...present)
  const authorizations = missing.map((payment) => authorizationOf(payment, parts.terms))
  const outcomes = await parts.signer.signEach(authorizations)
  parts.failpoint('after_sign')
  const signed: SignedPayment[] = []
  for (const [index, payment] of missing.entries()) {
    const outcome = outcomes[index]!
    if ('refusal' in outcome) {
      const { reason, message } = outcome.refusal
      parts.onAlarm('the signer refuses a payment', { ...nameOf(payment), reason, message })
      news.push({ payment, state: payment.state, reason: `signer: ${reason}` })
    } else signed.push({ payment, authorization: authorizations[index]!, signature: outcome.signature })
  }
  news.push(...(await submitSigned(parts, signed)))
  parts.failpoint('after_submit')
  await advancePayments(parts.database, news)
  return payments.length
}

/**
 * Signs payments that were recovered after a restore, over the entries that the restored ledger has. The root on chain is that of the
 * lost entries, so only the signature proves these receipts.
 */
export async function rootRecovered(parts: SubmitParts): Promise<void> {
  const { database, signer, terms } = parts
  const payments = await findRecoveredPayments(database, paymentsMax)
  for (const payment of payments) {
    // One after the other: each is chained to the root of the one before.
    const chained = await chainRecoveredPayment(database, payment)
    const computed = (await computeRoots(database, [chained], terms)).get(chained)!
    if (computed instanceof Error) {
      parts.onAlarm('the receipts of a payment cannot be computed', { ...nameOf(payment), err: computed })
      continue
    }
    const signature = await signer.signReceipt(computed.structHash)
    await keepRoots(database, [{ payment, root: computed.root, signature }])
  }
}

type Rooted = Payment & { readonly root: Hex }

function needsTransfer({ value, isPrepaid }: Payment): boolean {
  return value !== 0n && !isPrepaid
}

/**
 * Computes, signs and stores the roots of receipts, before a payment is first submitted. A payment whose entries cannot be read raises
 * an alarm and does not delay the others.
 */
async function withRoots(
  parts: SubmitParts,
  payments: readonly Payment[],
): Promise<{ readonly rooted: readonly Rooted[]; readonly unrooted: readonly PaymentNews[] }> {
  const { database, signer, terms } = parts
  const computedRoots: { payment: Payment; root: Hex; structHash: Hex }[] = []
  const unrooted: PaymentNews[] = []
  const fresh = payments.filter(({ root }) => root === undefined)
  for (const [payment, computed] of await computeRoots(database, fresh, terms)) {
    if (computed instanceof Error) {
      parts.onAlarm('the receipts of a payment cannot be computed', { ...nameOf(payment), err: computed })
      unrooted.push({ payment, state: payment.state, reason: computed.message })
    } else computedRoots.push({ payment, ...computed })
  }
  // Concurrent calls share one message to the signer.
  const signatures = await Promise.all(computedRoots.map(({ structHash }) => signer.signReceipt(structHash)))
  const signed = computedRoots.map(({ payment, root }, index) => {
    return { payment, root, signature: signatures[index]! }
  })
  parts.failpoint('before_roots')
  await keepRoots(database, signed)
  const roots = new Map(signed.map(({ payment, root }) => [payment, root]))
  const rooted = payments.flatMap((payment) => {
    const root = payment.root ?? roots.get(payment)
    return root === undefined ? [] : [{ ...payment, root }]
  })
  return { rooted, unrooted }
}

/**
 * The payments that the gateway does not have, each with a validity window that is open for long enough: the gateway requires seven
 * days. Payments that the gateway may already have are looked up before they are signed: the signer refuses a window that has expired,
 * or that begins in the future because the database's clock was ahead.
 */
async function findMissing(
  parts: SubmitParts,
  payments: readonly Rooted[],
): Promise<{ readonly missing: readonly Rooted[]; readonly present: readonly PaymentNews[] }> {
  const missing: Rooted[] = []
  const present: PaymentNews[] = []
  await eachOf(payments, concurrencyMax, async (payment) => {
    const isUsable = isWindowUsable(payment.authorizedAt)
    if (payment.state !== 'unknown' && isUsable) {
      missing.push(payment)
      return
    }
    const authorization = authorizationOf(payment, parts.terms)
    const { from, nonce } = authorization.message
    const found = await parts.gatewayClient.findTransfer(from, nonce).catch((error: Error) => error)
    if (found instanceof Error) present.push({ payment, state: payment.state, reason: found.message })
    else if (found !== undefined) present.push(adopt(parts, payment, authorization, found))
    else if (!isUsable) {
      parts.onAlarm('the validity window of a waiting payment was renewed', nameOf(payment))
      missing.push({ ...payment, authorizedAt: await renewWindow(parts.database, payment) })
    } else missing.push(payment)
  })
  return { missing, present }
}

type SignedPayment = {
  readonly payment: Rooted
  readonly authorization: Authorization | Return
  readonly signature: Hex
}

async function submitSigned(parts: SubmitParts, signed: readonly SignedPayment[]): Promise<readonly PaymentNews[]> {
  const news: PaymentNews[] = []
  parts.failpoint('before_submit')
  const answers = await parts.gatewayClient.settle(
    signed.map(({ payment, authorization, signature }) => {
      const submittal = submittalOf(authorization.message, signature, parts)
      const extensions = { receipt: { hash: payment.root } }
      return { ...submittal, paymentPayload: { ...submittal.paymentPayload, extensions } }
    }),
  )
  await eachOf(signed, concurrencyMax, async ({ payment, authorization }, index) => {
    news.push(await readAnswer(parts, payment, authorization, answers[index]!))
  })
  return news
}

async function readAnswer(
  parts: SubmitParts,
  payment: Payment,
  authorization: Authorization | Return,
  answer: Submission,
): Promise<PaymentNews> {
  if (answer.state === 'received') return { payment, state: 'received', gatewayId: answer.id }
  if (answer.state === 'unknown') return { payment, state: 'unknown', reason: answer.reason }
  const { from, nonce } = authorization.message
  const found = await parts.gatewayClient.findTransfer(from, nonce).catch(() => 'unknown' as const)
  if (found === 'unknown') return { payment, state: 'unknown', reason: answer.reason }
  if (found !== undefined) return adopt(parts, payment, authorization, found)
  if (answer.reason === 'nonce_already_used') {
    // The gateway has settled this nonce but does not show the transfer. An operator must find out whether it is this payment.
    parts.onAlarm('payment nonce is used, but the gateway does not show the transfer', { ...nameOf(payment), nonce })
    return { payment, state: 'unknown', reason: answer.reason }
  }
  // The gateway does not have the payment. It is submitted again until the cause is fixed (balance, clock, settings). Until then
  // the cap on unsettled money limits the account.
  parts.onAlarm('the gateway refuses a payment', { ...nameOf(payment), reason: answer.reason })
  return { payment, state: 'submitted', reason: answer.reason }
}

/** Adopts a transfer that pays the same amount to the same address. Anything else under our nonce needs an operator, never a retry. */
function adopt(
  parts: SubmitParts,
  payment: Payment,
  { message }: Authorization | Return,
  found: GatewayTransfer,
): PaymentNews {
  if (isSame(message, found)) {
    if (found.state === 'failed') {
      parts.onAlarm('a payment failed at the gateway', { ...nameOf(payment), reason: found.reason })
    }
    // Its current state counts: earlier changes may have been reported before the gateway's id was stored.
    return newsOf(payment, found)
  }
  parts.onAlarm('payment nonce was used by a different transfer', {
    ...nameOf(payment),
    nonce: message.nonce,
    transfer: found.id,
  })
  return { payment, state: 'unknown', reason: 'nonce_conflict' }
}
