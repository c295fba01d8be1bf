import { type Database, isLockTimeout } from '../db/database.ts'
import { registerWallet, walletOf } from '../ledger/wallet-accounts.ts'
import {
  acceptedPayment,
  advanceX402Payments,
  creditPayment,
  deleteUndecided,
  findUndecidedPayments,
  findX402ByGatewayId,
  type OpenX402Payment,
  touchUndecided,
  touchX402Payments,
  type X402News,
} from '../ledger/x402-payments.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { type PaidResource, type PaymentTerms, paymentRequirementsOf, signedPayload } from './authorization.ts'
import { type GatewayClient, type GatewayTransfer, ledgerStateOf, type News } from './gateway-client.ts'

export type ConfirmParts = {
  readonly database: Database
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  /** The paid resource, as x402 wants it named. */
  readonly resource: PaidResource
  /** For problems that need an operator. */
  readonly onAlarm: (what: string, details: object) => void
}

const undecidedMax = 50

/** Applies the gateway's news to payments that wallets made in advance. Returns how many changed state. */
export async function confirmX402(parts: ConfirmParts, { transfers, lost, unanswered }: News): Promise<number> {
  const { database, onAlarm } = parts
  const byId = new Map(transfers.map((transfer) => [transfer.id, transfer]))
  const ids = [...byId.keys(), ...lost, ...unanswered]
  if (ids.length === 0) return 0
  const news: X402News[] = []
  const unchanged: OpenX402Payment[] = []
  for (const payment of await findX402ByGatewayId(database, ids)) {
    const transfer = byId.get(payment.gatewayId!)
    const item = transfer === undefined ? undefined : newsOf(payment, transfer)
    if (item?.state === 'failed') onAlarm('a payment of a wallet failed after it was accepted', nameOf(payment))
    if (item !== undefined && item.state !== payment.state) news.push(item)
    else {
      const again = lost.includes(payment.gatewayId!) ? await resubmit(parts, payment) : []
      // Also a lost payment that the gateway does not take back: it must not be asked for again in every round.
      if (again.length > 0) news.push(...again)
      else unchanged.push(payment)
    }
  }
  const moved = await advanceX402Payments(database, news)
  await touchX402Payments(database, unchanged)
  return moved
}

function newsOf(payment: OpenX402Payment, transfer: GatewayTransfer): X402News {
  const { id: gatewayId, batch, transactionHash, reason } = transfer
  const state = ledgerStateOf(transfer.state)
  return {
    payment,
    state,
    gatewayId,
    batch,
    transactionHash,
    reason: state === 'failed' ? (reason ?? 'failed') : undefined,
  }
}

function failed(payment: OpenX402Payment, reason: string): X402News {
  const unknown = { batch: undefined, transactionHash: undefined }
  return { payment, state: 'failed', reason, gatewayId: payment.gatewayId!, ...unknown }
}

/** Submits a payment again that the gateway accepted and then lost. It is the same authorization, so it cannot pay twice. */
async function resubmit(parts: ConfirmParts, payment: OpenX402Payment): Promise<readonly X402News[]> {
  const { gatewayClient, terms, resource, onAlarm } = parts
  onAlarm('the gateway has lost a payment of a wallet', nameOf(payment))
  const accepted = paymentRequirementsOf(terms, terms.seller, payment.value)
  const message = {
    from: payment.payer as Address,
    to: terms.seller,
    value: payment.value,
    validAfter: payment.validAfter,
    validBefore: payment.validBefore,
    nonce: nonceOf(payment),
  }
  const signature: Hex = `0x${payment.signature.toString('hex')}`
  // One that cannot be looked up must not keep the news of the others.
  const found = await gatewayClient.findTransfer(message.from, message.nonce).catch((error: Error) => error)
  if (found instanceof Error) return []
  if (found !== undefined)
    return [isSame(parts, payment, found) ? newsOf(payment, found) : failed(payment, 'nonce_conflict')]
  const [answer] = await gatewayClient.settle([
    { paymentPayload: signedPayload(message, signature, accepted, resource), paymentRequirements: accepted },
  ])
  if (answer!.state !== 'received') {
    onAlarm('the gateway does not take a lost payment of a wallet again', {
      ...nameOf(payment),
      reason: answer!.reason,
    })
    // An expired authorization can never be paid.
    if (payment.isExpired) return [failed(payment, 'lost')]
    return []
  }
  return [
    {
      payment,
      state: 'received',
      reason: undefined,
      gatewayId: answer!.id,
      batch: undefined,
      transactionHash: undefined,
    },
  ]
}

/**
 * Resolves payments whose request died around the call to the gateway. Those that the gateway has become credit. The others stay
 * until their authorization has expired, at most 30 days (`readPayment`), however often the gateway says that it has nothing: a
 * delayed call may still arrive, its list may lag behind what it accepted, and a gateway that lost its database learns of a paid
 * authorization only when it has read the chain again. Deleting the row earlier could leave a payment without credit.
 */
export async function resolveUndecided(parts: ConfirmParts): Promise<number> {
  const { database, gatewayClient, onAlarm } = parts
  const undecided = await findUndecidedPayments(database, undecidedMax)
  for (const payment of undecided) {
    const found = await gatewayClient
      .findTransfer(payment.payer as Address, nonceOf(payment))
      .catch((error: Error) => error)
    if (found instanceof Error || (found === undefined && !payment.isExpired)) await touchUndecided(database, payment)
    else if (found === undefined || found.state === 'failed') await deleteUndecided(database, payment)
    else if (isSame(parts, payment, found)) {
      const wallet = walletOf(payment)
      await registerWallet(database, wallet)
      try {
        await creditPayment(database, wallet, acceptedPayment({ wallet, nonce: payment.nonce }, found.id))
      } catch (error) {
        if (!isLockTimeout(error)) throw error
        await touchUndecided(database, payment)
      }
    } else {
      // The gateway takes a nonce once: this payment can never be made, and must not count as owed.
      onAlarm('the gateway has another payment under this nonce', { ...nameOf(payment), transfer: found.id })
      await deleteUndecided(database, payment)
    }
  }
  return undecided.length
}

/** A wallet can sign two payments with one nonce, and have the cheaper one submitted first. */
function isSame({ terms }: ConfirmParts, payment: OpenX402Payment, { to, amount }: GatewayTransfer): boolean {
  return to === terms.seller && amount === payment.value
}

function nonceOf({ nonce }: OpenX402Payment): Hex {
  return `0x${nonce.toString('hex')}`
}

function nameOf(payment: OpenX402Payment): object {
  return { payer: payment.payer, nonce: nonceOf(payment) }
}
