import { type Address, type Hex, zeroAddress } from './address.ts'
import { type NonceUse, nonceOf, saltOf } from './nonce.ts'
import {
  type PayoutRequest,
  SigningRefusedError,
  type TransferOperation,
  type TransferRequest,
  type WithdrawalRequest,
} from './signing-request.ts'
import {
  burnIntent,
  decidedSecondsOf,
  gatewayDomain,
  payOutMax,
  receiptDomain,
  type SigningTerms,
  usdcDomain,
} from './signing-terms.ts'
import { type BurnIntent, burnIntentDigest, digest, type TransferType, transferDigest } from './typed-data.ts'

export type SigningLimits = {
  /** The most that one authorization may be worth: what may be in flight, and as much again for a debt taken along. */
  readonly authorizationMax: bigint
  /** The most that the gateway may keep of one withdrawal. */
  readonly withdrawalFeeMax: bigint
}

export type PolicyOptions = {
  readonly terms: SigningTerms
  readonly limits: SigningLimits
  /** Where the seller's revenue may go; undefined when the operator has named no address. */
  readonly payoutAddress: Address | undefined
  /** Whose gas the revenue may pay for. */
  readonly relayer: Address
}

// The database's clock decides the window; it may be ahead of the signer's by so much.
const clockSkewSecondsMax = 600
const ledgerAmountMax = 2n ** 63n - 1n

type TransferRule = {
  readonly type: TransferType
  readonly use: NonceUse
  readonly domain: Hex
  readonly valueMax: bigint
}

/**
 * What may be signed, decided inside the signer from its own settings. Of every request the signer works out by itself
 * what an honest caller would have asked, and refuses where the two differ; nothing is signed because a caller says so.
 */
export class SigningPolicy {
  readonly #terms: SigningTerms
  readonly #limits: SigningLimits
  readonly #payoutAddress: Address | undefined
  readonly #relayer: Address
  readonly #rules: Readonly<Record<TransferOperation, TransferRule>>

  constructor({ terms, limits, payoutAddress, relayer }: PolicyOptions) {
    this.#terms = terms
    this.#limits = limits
    this.#payoutAddress = payoutAddress
    this.#relayer = relayer
    const rule = { type: 'TransferWithAuthorization', domain: gatewayDomain(terms) } as const
    this.#rules = {
      authorization: { ...rule, use: 'authorization', valueMax: limits.authorizationMax },
      // Credit is given back to be withdrawn, so it may be as much: with less, a withdrawal would be taken and never paid.
      return: { ...rule, use: 'return', valueMax: payOutMax },
      // Only the gateway can carry it out, and it credits the account that signed: any amount is as safe as none.
      deposit: {
        type: 'ReceiveWithAuthorization',
        use: 'deposit',
        domain: usdcDomain(terms),
        valueMax: ledgerAmountMax,
      },
    }
  }

  get seller(): Address {
    return this.#terms.seller
  }

  /** The digest to sign with the key of `message.from`. */
  transfer(request: TransferRequest, account: Address, nowMs: number): Buffer {
    const { operation, message } = request
    const rule = this.#rules[operation]
    requireEqual('wrong_domain', 'domain', request.domain, rule.domain)
    requireEqual('wrong_from', 'from', message.from, operation === 'return' ? this.#terms.seller : account)
    requireEqual('wrong_to', 'to', message.to, this.#recipient(operation, account))
    const nonce = nonceOf(rule.use, request.account, request.epoch, request.sequence)
    requireEqual('wrong_nonce', 'nonce', message.nonce, nonce)
    requireValue(message.value, rule.valueMax)
    requireWindow(message, Math.floor(nowMs / 1000))
    return transferDigest(rule.domain, rule.type, message)
  }

  withdrawal(request: WithdrawalRequest, account: Address, owner: Address | undefined): Buffer {
    if (owner === undefined) throw new SigningRefusedError('no_owner', 'no owner of the account may be paid yet')
    this.requireOwner(owner, account)
    return this.#intent(request.intent, account, owner, saltOf('withdrawal', request.withdrawal))
  }

  payout(request: PayoutRequest): Buffer {
    const toRelayer = request.intent.spec.destinationRecipient.endsWith(this.#relayer.slice(2))
    const recipient = toRelayer ? this.#relayer : this.#payoutAddress
    if (recipient === undefined) throw new SigningRefusedError('no_payout_address', 'no address for payouts is set')
    return this.#intent(request.intent, this.#terms.seller, recipient, saltOf('payout', request.payout))
  }

  receipt(structHash: Hex): Buffer {
    return digest(receiptDomain(this.#terms), Buffer.from(structHash.slice(2), 'hex'))
  }

  /** Addresses at which money would be lost, or would go round in a circle. */
  requireOwner(owner: Address, account: Address): void {
    const { usdc, gatewayWallet, gatewayMinter, seller } = this.#terms
    if ([zeroAddress, usdc.address, gatewayWallet, gatewayMinter, seller, account].includes(owner)) {
      throw new SigningRefusedError('bad_owner', `${owner} is no address of an owner`)
    }
  }

  #recipient(operation: TransferOperation, account: Address): Address {
    if (operation === 'return') return account
    return operation === 'deposit' ? this.#terms.gatewayWallet : this.#terms.seller
  }

  #intent(intent: BurnIntent, depositor: Address, recipient: Address, salt: Hex): Buffer {
    const { maxFee, maxBlockHeight, spec } = intent
    const expected = burnIntent(this.#terms, { depositor, recipient, value: spec.value, maxFee, salt })
    requireEqual('wrong_intent', 'maxBlockHeight', maxBlockHeight, expected.maxBlockHeight)
    for (const [name, value] of Object.entries(expected.spec)) {
      requireEqual('wrong_intent', name, spec[name as keyof typeof spec], value)
    }
    requireValue(spec.value, payOutMax)
    if (maxFee > this.#limits.withdrawalFeeMax) {
      throw new SigningRefusedError('fee_above_cap', `fee of ${maxFee}; at most ${this.#limits.withdrawalFeeMax}`)
    }
    return burnIntentDigest(expected)
  }
}

type Plain = string | number | bigint

function requireEqual(
  reason: SigningRefusedError['reason'],
  field: string,
  asked: Plain | undefined,
  expected: Plain,
): void {
  if (asked !== expected) throw new SigningRefusedError(reason, `${field} is ${asked}; here it is ${expected}`)
}

function requireValue(value: bigint, max: bigint): void {
  if (value <= 0n || value > max) {
    throw new SigningRefusedError('value_out_of_range', `value of ${value}; here from 1 to ${max}`)
  }
}

/** Not made for the future, so that nothing can be signed today for use in a year; and not yet over. */
function requireWindow(window: { validAfter: number; validBefore: number }, nowSeconds: number): void {
  const decided = decidedSecondsOf(window)
  if (decided !== undefined && decided <= nowSeconds + clockSkewSecondsMax && window.validBefore > nowSeconds) return
  const { validAfter, validBefore } = window
  throw new SigningRefusedError('wrong_window', `open from ${validAfter} to ${validBefore}; it is ${nowSeconds}`)
}
