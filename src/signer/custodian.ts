import type { AccountKeys, CustodialKey } from './account-keys.ts'
import type { HourlyValues } from './hourly-values.ts'
import type { OwnerRegister } from './owner-register.ts'
import { signDigest } from './secp256k1.ts'
import { isOfSeller, type SigningPolicy } from './signing-policy.ts'
import {
  type LiabilitiesRequest,
  type OwnerRequest,
  type PayoutRequest,
  parseRequest,
  type ReceiptRequest,
  type RefusalReason,
  type SigningAnswer,
  SigningRefusedError,
  type SigningRequest,
  type TransferRequest,
  type WithdrawalRequest,
} from './signing-request.ts'

export type CustodianOptions = {
  readonly keys: AccountKeys
  readonly policy: SigningPolicy
  readonly owners: OwnerRegister
  /**
   * Hourly totals of payments to the seller, returns, refunds to wallets, payments out of the gateway, and refills of the relayer's gas.
   * Deposits stay the account's money and are not counted.
   */
  readonly hours: Readonly<Record<'authorization' | 'return' | 'refund' | 'payingOut' | 'refill', HourlyValues>>
  readonly now: () => number
  /** Reports unexpected errors, not refusals. */
  readonly onError: (error: unknown) => void
}

/** Counts per operation and per refusal reason, for the log. */
export type CustodianCounts = {
  readonly done: Readonly<Partial<Record<SigningRequest['operation'], number>>>
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>
}

/** Holds the keys and signs what the policy allows. No key and no digest ever leaves it. */
export class Custodian {
  readonly #options: CustodianOptions
  #counts: { done: Record<string, number>; refused: Record<string, number> } = { done: {}, refused: {} }

  constructor(options: CustodianOptions) {
    this.#options = options
  }

  /** Answers one request from the socket. Never throws: a bad request must not fail the other requests of its batch. */
  answer(value: unknown): SigningAnswer {
    try {
      const request = parseRequest(value)
      const answer = this.#do(request)
      this.#counts.done[request.operation] = (this.#counts.done[request.operation] ?? 0) + 1
      return answer
    } catch (error) {
      if (!(error instanceof SigningRefusedError)) this.#options.onError(error)
      const reason = error instanceof SigningRefusedError ? error.reason : 'failed'
      this.#counts.refused[reason] = (this.#counts.refused[reason] ?? 0) + 1
      const message = error instanceof SigningRefusedError ? error.message : 'the signer failed to process this request'
      return { refusal: { reason, message } }
    }
  }

  /** Returns the counts since the last call and resets them. */
  takeCounts(): CustodianCounts {
    const counts = this.#counts
    this.#counts = { done: {}, refused: {} }
    return counts
  }

  #do(request: SigningRequest): SigningAnswer {
    switch (request.operation) {
      case 'authorization':
      case 'return':
      case 'refund':
      case 'deposit':
        return this.#transfer(request)
      case 'withdrawal':
        return this.#withdraw(request)
      case 'payout':
        return this.#payOut(request)
      case 'receipt':
        return this.#signReceipt(request)
      case 'liabilities':
        return this.#signLiabilities(request)
      case 'address':
        return { address: this.#options.keys.ofAccount(request.account).address }
      case 'owner':
        return this.#registerOwner(request)
    }
  }

  #transfer(request: TransferRequest): SigningAnswer {
    const { keys, policy, now } = this.#options
    const account = keys.ofAccount(request.account)
    const key = isOfSeller(request.operation) ? this.#sellerKey() : account
    const digest = policy.transfer(request, account.address, now())
    if (request.operation !== 'deposit') this.#count(request.operation, request.account, request.message.value)
    return { signature: signDigest(digest, key.privateKey) }
  }

  #withdraw(request: WithdrawalRequest): SigningAnswer {
    const { keys, policy, owners, now } = this.#options
    const key = keys.ofAccount(request.account)
    const digest = policy.withdrawal(request, key.address, owners.usable(request.account, now())?.address)
    this.#count('payingOut', request.account, request.intent.spec.value)
    return { signature: signDigest(digest, key.privateKey) }
  }

  #payOut(request: PayoutRequest): SigningAnswer {
    const { policy } = this.#options
    const digest = policy.payout(request)
    const key = this.#sellerKey()
    this.#count(policy.isRefill(request) ? 'refill' : 'payingOut', 'seller', request.intent.spec.value)
    return { signature: signDigest(digest, key.privateKey) }
  }

  #signReceipt({ structHash }: ReceiptRequest): SigningAnswer {
    const { keys, policy } = this.#options
    return { signature: signDigest(policy.receipt(structHash), keys.ofRole('issuer').privateKey) }
  }

  #signLiabilities({ snapshot }: LiabilitiesRequest): SigningAnswer {
    const { keys, policy, now } = this.#options
    return { signature: signDigest(policy.liabilities(snapshot, now()), keys.ofRole('issuer').privateKey) }
  }

  #registerOwner({ account, owner, immediate }: OwnerRequest): SigningAnswer {
    const { keys, policy, owners, now } = this.#options
    policy.requireOwner(owner, keys.ofAccount(account).address)
    return { owner: owners.register(account, owner, now(), immediate) }
  }

  /** The operator may configure a seller address whose key is held elsewhere. Then returns and payouts are signed there. */
  #sellerKey(): CustodialKey {
    const key = this.#options.keys.ofRole('seller')
    const { seller } = this.#options.policy
    if (key.address === seller) return key
    throw new SigningRefusedError('seller_not_held', `the key of ${seller} is not held here`)
  }

  #count(kind: keyof CustodianOptions['hours'], account: string, value: bigint): void {
    const hours = this.#options.hours[kind]
    // A permanent refusal, unlike `hour_cap`: the caller must not retry it in a later hour.
    if (value > hours.valueMax) {
      throw new SigningRefusedError(
        'value_out_of_range',
        `value is ${value}; the limit for an hour is ${hours.valueMax}`,
      )
    }
    if (hours.take(account, value, this.#options.now())) return
    throw new SigningRefusedError('hour_cap', `signing ${value} more would exceed the limit of this hour`)
  }
}
