import { type Database, isLockTimeout } from '../db/database.ts'
import {
  advanceEach,
  findTransfersAtGateway,
  type Transfer,
  type TransferNews,
  touchTransfer,
} from '../ledger/transfers.ts'
import { registerWallet, walletOf } from '../ledger/wallet-accounts.ts'
import { acceptedPayment, creditPayment, deleteUndecided, findUndecidedPayments } from '../ledger/x402-payments.ts'
import type { Address } from '../signer/address.ts'
import type { TransferMessage } from '../signer/typed-data.ts'
import { type PaidResource, type PaymentTerms, submittalOf } from './authorization.ts'
import type { GatewayClient, GatewayTransfer, News } from './gateway-client.ts'
import { isSame, stateOfTransfer } from './transfers/rails.ts'

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
  const news: TransferNews[] = []
  const unchanged: Transfer[] = []
  for (const payment of await findTransfersAtGateway(database, 'x402', ids)) {
    const transfer = byId.get(payment.gatewayId!)
    const item = transfer === undefined ? undefined : newsOf(payment, transfer)
    if (item?.state === 'failed') onAlarm('a payment of a wallet failed after it was accepted', nameOf(payment))
    if (item !== undefined && item.state !== payment.state) news.push(item)
    else {
      const again = lost.includes(payment.gatewayId!) ? await resubmit(parts, payment) : undefined
      // Also a lost payment that the gateway does not take back: it must not be asked for again in every round.
      if (again !== undefined) news.push(again)
      else unchanged.push(payment)
    }
  }
  const moved = await advanceEach(database, news)
  for (const payment of unchanged) await touchTransfer(database, payment)
  return moved
}

function newsOf(transfer: Transfer, { id, state, transactionHash, reason }: GatewayTransfer): TransferNews {
  const isFailed = state === 'failed'
  const facts = { gatewayId: id, transactionHash, reason: isFailed ? (reason ?? 'failed') : undefined }
  return { transfer, state: stateOfTransfer(state), ...facts }
}

function failed(transfer: Transfer, reason: string): TransferNews {
  return { transfer, state: 'failed', reason }
}

/** Submits a payment again that the gateway accepted and then lost. It is the same authorization, so it cannot pay twice. */
async function resubmit(parts: ConfirmParts, payment: Transfer): Promise<TransferNews | undefined> {
  const { gatewayClient, onAlarm } = parts
  onAlarm('the gateway has lost a payment of a wallet', nameOf(payment))
  const message = messageOf(parts, payment)
  // One that cannot be looked up must not keep the news of the others.
  const found = await gatewayClient.findTransfer(message.from, message.nonce).catch((error: Error) => error)
  if (found instanceof Error) return undefined
  if (found !== undefined) return isSame(message, found) ? newsOf(payment, found) : failed(payment, 'nonce_conflict')
  const [answer] = await gatewayClient.settle([submittalOf(message, payment.signature!, parts)])
  if (answer!.state === 'received') return { transfer: payment, state: 'received', gatewayId: answer!.id }
  const what = 'the gateway does not take a lost payment of a wallet again'
  onAlarm(what, { ...nameOf(payment), reason: answer!.reason })
  // An expired authorization can never be paid.
  return payment.isExpired ? failed(payment, 'lost') : undefined
}

/** What the wallet has signed. */
function messageOf({ terms }: ConfirmParts, payment: Transfer): TransferMessage {
  const { counterparty, amount: value, nonce, validAfter, validBefore } = payment
  const window = { validAfter: validAfter!, validBefore: validBefore! }
  return { from: counterparty as Address, to: terms.seller, value, ...window, nonce: nonce! }
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
    const message = messageOf(parts, payment)
    const found = await gatewayClient.findTransfer(message.from, message.nonce).catch((error: Error) => error)
    if (found instanceof Error || (found === undefined && !payment.isExpired)) await touchTransfer(database, payment)
    else if (found === undefined || found.state === 'failed') await deleteUndecided(database, payment)
    else if (isSame(message, found)) {
      const wallet = walletOf({ ...payment, payer: payment.counterparty })
      const nonce = Buffer.from(payment.nonce!.slice(2), 'hex')
      await registerWallet(database, wallet)
      try {
        await creditPayment(database, wallet, acceptedPayment({ wallet, nonce }, found.id))
      } catch (error) {
        if (!isLockTimeout(error)) throw error
        await touchTransfer(database, payment)
      }
    } else {
      // A wallet can sign two payments with one nonce, and have the cheaper one submitted first. The gateway takes a nonce once: this payment can never be made, and must not count as owed.
      onAlarm('the gateway has another payment under this nonce', { ...nameOf(payment), transfer: found.id })
      await deleteUndecided(database, payment)
    }
  }
  return undecided.length
}

function nameOf({ counterparty: payer, nonce }: Transfer): object {
  return { payer, nonce }
}
