import { isRefundReady } from '../../ledger/refunds.ts'
import type { TransferKind } from '../../ledger/states.ts'
import type { Transfer } from '../../ledger/transfers.ts'
import { isSettled } from '../../ledger/withdrawals.ts'
import type { SettlementFailpointName } from '../../process/failpoints.ts'
import type { Address } from '../../signer/address.ts'
import { nonceOf, saltOf } from '../../signer/nonce.ts'
import type { SignatureRequest } from '../../signer/signer.ts'
import { burnIntent, type SigningTerms, windowOf } from '../../signer/signing-terms.ts'
import { isSellerShort } from '../solvency.ts'
import type { TransferParts } from './machine.ts'
import { burn, type Rail, settle } from './rails.ts'

/** What differs between kinds of transfers. */
export type KindRules = {
  readonly rail: Rail
  /** Transfers of one round. */
  readonly dueMax: number
  /** Before and after the call to the gateway. */
  readonly failpoints: readonly [SettlementFailpointName, SettlementFailpointName]
  /** False: the money is owed whatever the gateway says, so a refusal is only logged. */
  readonly endsWhenRefused: boolean
  /** Whether a transfer may be submitted for the first time. */
  isReady(parts: TransferParts, transfer: Transfer): Promise<boolean>
  /** What the signer signs. A pure function of the row: every attempt has the same bytes. */
  requestOf(parts: TransferParts, transfer: Transfer): Promise<SignatureRequest>
}

const withdrawal: KindRules = {
  rail: burn,
  dueMax: 50,
  failpoints: ['before_withdraw', 'after_withdraw'],
  endsWhenRefused: true,
  // Earlier charges are paid first. Then the gateway's balance of the account equals the ledger's.
  isReady: ({ database }, transfer) => isSettled(database, transfer),
  async requestOf({ signer, signingTerms }, transfer) {
    const { accountId: account, id } = transfer
    const intent = intentOf(signingTerms, transfer, await signer.addressOf(account))
    return { operation: 'withdrawal', account, withdrawal: id, intent }
  },
}

const payout: KindRules = {
  rail: burn,
  dueMax: 20,
  failpoints: ['before_payout', 'after_payout'],
  endsWhenRefused: true,
  async isReady({ database, onAlarm }, { id }) {
    const isShort = await isSellerShort(database)
    if (isShort) onAlarm('payout postponed: the seller has less than it owes', { payout: id })
    return !isShort
  },
  async requestOf({ signingTerms }, transfer) {
    const intent = intentOf(signingTerms, transfer, signingTerms.seller)
    return { operation: 'payout', payout: transfer.id, intent }
  },
}

/** The seller pays unused credit back to a wallet. */
const refund: KindRules = {
  rail: settle,
  dueMax: 50,
  failpoints: ['before_refund', 'after_refund'],
  endsWhenRefused: false,
  // A short seller pays nothing: the first refund must not be paid with money that is owed to others.
  isReady: async ({ database }, transfer) =>
    (await isRefundReady(database, transfer)) && !(await isSellerShort(database)),
  async requestOf({ terms }, transfer) {
    const { accountId: account, epoch, sequence, counterparty, amount, authorizedAt } = transfer
    const nonce = nonceOf('refund', account, epoch, sequence)
    const message = {
      from: terms.seller,
      to: counterparty as Address,
      value: amount,
      ...windowOf(authorizedAt),
      nonce,
    }
    return { operation: 'refund', account, epoch, sequence, domain: terms.domain, message }
  },
}

/** The service submits a payment over x402 in its request; `confirm-x402.ts` follows it. */
export type SubmittedKind = Exclude<TransferKind, 'x402'>

export const kinds: Readonly<Record<SubmittedKind, KindRules>> = { withdrawal, payout, refund }

function intentOf(terms: SigningTerms, { kind, id, amount, feeMax, counterparty }: Transfer, depositor: Address) {
  return burnIntent(terms, {
    depositor,
    recipient: counterparty as Address,
    // Never recomputed: another value would be another intent, and could be paid twice.
    value: amount - feeMax,
    maxFee: feeMax,
    salt: saltOf(kind as 'withdrawal' | 'payout', id),
  })
}
