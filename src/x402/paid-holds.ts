import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { findAccount } from '../ledger/accounts.ts'
import type { HoldCall, HoldDecision, HoldRefusal, HoldRefusalCode } from '../ledger/hold-calls.ts'
import type { Holds } from '../ledger/holds.ts'
import { quoteHold } from '../ledger/quote-hold.ts'
import { registerWallet, type X402Wallet } from '../ledger/wallet-accounts.ts'
import {
  acceptedPayment,
  claimPayment,
  declinePayment,
  deleteRefusedPayment,
  reopenPayment,
  type X402Payment,
} from '../ledger/x402-payments.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, type Usdc, zero } from '../money/usdc.ts'
import type { Failpoint } from '../process/failpoints.ts'
import { signedPayload } from '../settlement/authorization.ts'
import type { GatewayClient, GatewayTransfer } from '../settlement/gateway-client.ts'
import { encodeHeader } from './header.ts'
import { chatResource, PaymentRequiredError } from './payment-required.ts'
import { PaymentInvalidError, type ReadPayment } from './read-payment.ts'
import { requirementsOf, type X402Terms } from './terms.ts'

export type PaidHoldsParts = {
  readonly database: Database
  readonly holds: Pick<Holds, 'place' | 'placePaid'>
  readonly gatewayClient: Pick<GatewayClient, 'settle' | 'findTransfer'>
  readonly terms: X402Terms
  readonly inFlightCap: Usdc
  readonly failpoint: Failpoint
  readonly onAlarm: (what: string, details: object) => void
}

/** A payment that came with a request. */
export type PresentedPayment = ReadPayment & {
  /** It has already paid for a request. */
  readonly isUsed: boolean
}

/** The caller, as far as it is known. */
export type WalletCaller = {
  /** Undefined: it has sent neither a payment nor a sign-in. */
  readonly wallet: X402Wallet | undefined
  readonly payment: PresentedPayment | undefined
}

/**
 * The hold of one request of a wallet, in place of `Holds`: credit is spent first, and a payment pays the rest before anything is held.
 * An accepted payment is never lost. Whatever happens after it, its value is credit of the wallet.
 */
export class PaidHolds {
  readonly #parts: PaidHoldsParts
  readonly #caller: WalletCaller
  /** Of value 0 and without a transaction when credit covered the request. */
  #accepted: { readonly value: bigint; readonly gatewayId: string } | undefined

  constructor(parts: PaidHoldsParts, caller: WalletCaller) {
    this.#parts = parts
    this.#caller = caller
  }

  /** The `PAYMENT-RESPONSE` header, once the payment was accepted or credit made it unnecessary. */
  get headers(): Readonly<Record<string, string>> {
    if (this.#accepted === undefined) return {}
    const { value, gatewayId: transaction } = this.#accepted
    const { network } = this.#parts.terms
    const response = { success: true, transaction, network, payer: this.#caller.wallet!.address, amount: `${value}` }
    return { 'payment-response': encodeHeader(response) }
  }

  /** What an error says about an accepted payment. */
  get errorFields(): Readonly<Record<string, string>> {
    if (this.#accepted === undefined || this.#accepted.value === 0n) return {}
    const paid = fromAtomic(this.#accepted.value)
    return {
      ...moneyFields({ paid }),
      payment: `The payment of ${format(paid)} USDC was accepted. The part that was not charged is credit of the wallet: the next request uses it, and POST /x402/v1/refund pays it back.`,
    }
  }

  async place(call: HoldCall): Promise<HoldDecision> {
    const { wallet, payment } = this.#caller
    if (wallet === undefined) throw new PaymentRequiredError(this.#parts.terms, call.quote, zero)
    // After an accepted payment its value is credit: a request that is checked again is not paid again.
    if (this.#accepted !== undefined) return this.#spendCredit({ ...wallet, isKnown: true }, call)
    if (payment === undefined) return this.#spendCredit(wallet, call)
    // Must come first: later refusals reveal the wallet's credit.
    if (payment.isUsed) throw new PaymentUsedError(this.#parts.terms)
    return this.#payAndHold(wallet, payment, call)
  }

  async #spendCredit(wallet: X402Wallet, call: HoldCall): Promise<HoldDecision> {
    const { holds, terms } = this.#parts
    if (!wallet.isKnown) throw new PaymentRequiredError(terms, call.quote, zero)
    const decision = await holds.place(call)
    if (!('refusal' in decision)) return decision
    const { code, spendable } = decision.refusal
    if (code === 'insufficient_balance') throw new PaymentRequiredError(terms, call.quote, max(zero, spendable))
    await this.#refuseDisabled(wallet, code)
    return decision
  }

  async #payAndHold(wallet: X402Wallet, { message, signature }: ReadPayment, call: HoldCall): Promise<HoldDecision> {
    const { database, holds, terms, failpoint } = this.#parts
    const { refusal, isCovered } = await this.#checkBeforePaying(wallet, message.value, call)
    if (refusal !== undefined) return { refusal }
    const payment: X402Payment = {
      wallet,
      nonce: Buffer.from(message.nonce.slice(2), 'hex'),
      value: message.value,
      validAfter: message.validAfter,
      validBefore: message.validBefore,
      signature: Buffer.from(signature.slice(2), 'hex'),
      requestId: call.requestId,
    }
    const claim = await claimPayment(database, payment)
    if (claim === 'used') throw new PaymentUsedError(terms)
    if (claim === 'taken') throw new PaymentUnknownError('Another request is using this payment.')
    failpoint('after_x402_claim')
    // One that was claimed before may be at the gateway already.
    if (isCovered && claim === 'claimed') {
      const decision = await this.#spendInstead(payment, call)
      if (decision !== undefined) return decision
    }
    const gatewayId = await this.#submit(payment, { message, signature }, claim === 'reclaimed')
    failpoint('after_x402_settle')
    this.#accepted = { value: message.value, gatewayId }
    await registerWallet(database, wallet)
    const decision = await holds.placePaid({ ...call, payment: acceptedPayment(payment, gatewayId) })
    if (decision !== 'used') return decision
    this.#accepted = undefined
    throw new PaymentUsedError(terms)
  }

  /**
   * Places the hold from credit, because each payment costs gas. The payment is used up all the same: it pays one request. Undefined: another
   * request has spent the credit meanwhile, and the payment is claimed as before.
   */
  async #spendInstead(payment: X402Payment, call: HoldCall): Promise<HoldDecision | undefined> {
    const { database, holds } = this.#parts
    await declinePayment(database, payment)
    const decision = await holds.place(call)
    if (!('refusal' in decision)) {
      this.#accepted = { value: 0n, gatewayId: '' }
      return decision
    }
    await reopenPayment(database, payment)
    if (decision.refusal.code === 'insufficient_balance') return undefined
    await deleteRefusedPayment(database, payment)
    return decision
  }

  /** Every reason to refuse the hold that can be known now is checked before the money is taken. */
  async #checkBeforePaying(
    wallet: X402Wallet,
    value: bigint,
    { quote }: HoldCall,
  ): Promise<{ readonly refusal?: HoldRefusal; readonly isCovered: boolean }> {
    const { database, inFlightCap: cap, terms } = this.#parts
    if (value > cap) {
      throw new PaymentInvalidError(
        terms,
        'amount_mismatch',
        `it is worth ${format(fromAtomic(value))} USDC; at most ${format(cap)} USDC is accepted for one request`,
      )
    }
    const { refusal, spendable, inFlight, limitLeft } = await quoteHold(database, wallet, quote, cap)
    const numbers = { spendable, inFlight, limitLeft }
    const refused = (code: HoldRefusalCode) => ({ refusal: { ...numbers, code }, isCovered: false })
    if (quote > cap) return refused('quote_exceeds_cap')
    const credit = max(zero, spendable)
    // An account that does not exist yet has no key that could be valid.
    const isNew = !wallet.isKnown && refusal?.code === 'invalid_api_key'
    if (refusal !== undefined && refusal.code !== 'insufficient_balance' && !isNew) {
      await this.#refuseDisabled(wallet, refusal.code)
      return { refusal, isCovered: false }
    }
    if (inFlight + quote > cap) return refused('in_flight_cap')
    if (value + credit < quote) {
      const problem = `The payment is worth ${format(fromAtomic(value))} USDC, which is not enough; nothing was paid.`
      throw new PaymentRequiredError(terms, quote, credit, problem)
    }
    return { isCovered: refusal === undefined }
  }

  /** Throws when the holder has disabled the wallet's own key, or closed the account; says what helps. */
  async #refuseDisabled({ partition, accountId }: X402Wallet, code: HoldRefusalCode): Promise<void> {
    if (code !== 'api_key_revoked' && code !== 'api_key_expired') return
    const isClosed = (await findAccount(this.#parts.database, partition, accountId))?.closedAt !== undefined
    const problem = isClosed
      ? 'The account of this wallet was closed. Pay with another wallet, or ask the operator to reopen the account.'
      : 'Requests of this wallet are switched off: the key "x402" of its account is disabled or has expired. Enable it in the dashboard.'
    const paid = this.#accepted === undefined ? 'Nothing was paid. ' : ''
    throw new ServiceError('api_key_revoked', `${problem} ${paid}Credit is still paid back with POST /x402/v1/refund.`)
  }

  /** Returns the gateway's id of the payment. Throws when it was refused, or when its outcome is not known. */
  async #submit(
    payment: X402Payment,
    { message, signature }: Pick<ReadPayment, 'message' | 'signature'>,
    mayBeThere: boolean,
  ): Promise<string> {
    const { gatewayClient, terms, database } = this.#parts
    if (mayBeThere) {
      const found = await this.#find(payment, message)
      if (found !== undefined) return found
    }
    const accepted = requirementsOf(terms, message.value)
    const resource = {
      url: `${terms.publicUrl}${chatResource.path}`,
      description: chatResource.description,
      mimeType: 'application/json',
    }
    const [answer] = await gatewayClient.settle([
      { paymentPayload: signedPayload(message, signature, accepted, resource), paymentRequirements: accepted },
    ])
    if (answer!.state === 'received') return answer!.id
    if (answer!.state === 'unknown' || answer!.reason === 'nonce_already_used') {
      const found = await this.#find(payment, message)
      if (found !== undefined) return found
      if (answer!.state === 'unknown') throw new PaymentUnknownError('The gateway did not answer.')
    }
    // Otherwise an earlier attempt may have been accepted. The row stays: the settlement job credits the payment when it finds it, and
    // deletes the row when the authorization has expired.
    if (!mayBeThere && answer!.reason !== 'nonce_already_used') await deleteRefusedPayment(database, payment)
    throw new PaymentInvalidError(terms, answer!.reason, `the gateway refused it (${answer!.reason})`)
  }

  /** The payment as the gateway has it: undefined when it has none. */
  async #find(payment: X402Payment, { from, nonce, to, value }: ReadPayment['message']): Promise<string | undefined> {
    const { gatewayClient, database, terms, onAlarm } = this.#parts
    let found: GatewayTransfer | undefined
    try {
      found = await gatewayClient.findTransfer(from, nonce)
    } catch {
      throw new PaymentUnknownError('The gateway did not answer.')
    }
    if (found === undefined) return undefined
    if (found.to === to && found.amount === value && found.state !== 'failed') return found.id
    onAlarm('a payment is something else at the gateway', { payer: from, nonce, transfer: found.id })
    // The gateway takes a nonce once, so this payment can never be made. Its row would count as owed.
    await deleteRefusedPayment(database, payment)
    throw new PaymentInvalidError(terms, 'payment_used', 'its nonce has paid for something else')
  }
}

class PaymentUsedError extends PaymentInvalidError {
  constructor(terms: X402Terms) {
    super(terms, 'payment_used', 'it was already used. Sign a new one')
  }
}

/** The payment may have been accepted. A client that pays again loses nothing: an accepted payment becomes credit. */
export class PaymentUnknownError extends ServiceError {
  constructor(problem: string) {
    super(
      'payment_unknown',
      `${problem} The outcome of this payment is not known yet. Send the same payment again in half a minute, or read GET /x402/v1/balance: an accepted payment becomes credit of the wallet.`,
    )
  }
}
