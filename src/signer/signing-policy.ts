import { walletAccountId } from '../db/derived-id.ts'
import { type Hex, toHex } from '../receipts/hex.ts'
import { type Snapshot, snapshotDigest, snapshotNumber } from '../receipts/liability-proof.ts'
import { sumMax } from '../receipts/liability-tree.ts'
import { type Address, zeroAddress } from './address.ts'
import { keccak256 } from './keccak.ts'
import { nonceOf, saltOf, type TransferOperation } from './nonce.ts'
import {
  type PayoutRequest,
  SigningRefusedError,
  type TransferRequest,
  type WithdrawalRequest,
} from './signing-request.ts'
import {
  burnIntent,
  clockSkewSecondsMax,
  decidedSecondsOf,
  gatewayDomain,
  payOutMax,
  receiptDomain,
  type SigningTerms,
  usdcDomain,
} from './signing-terms.ts'
import { type BurnIntent, burnIntentDigest, digest, type TransferType, transferDigest } from './typed-data.ts'

export type SigningLimits = {
  /** The largest payment: what an account can owe, debt included (`dueRulesOf`). */
  readonly authorizationMax: bigint
  /** The highest fee that the gateway may keep of one withdrawal. */
  readonly withdrawalFeeMax: bigint
  /** The largest payout to the relayer: a refill of its gas. */
  readonly refillMax: bigint
}

export type PolicyOptions = {
  readonly terms: SigningTerms
  readonly limits: SigningLimits
  /** Where the seller's revenue may go; undefined when the operator has configured no address. */
  readonly payoutAddress: Address | undefined
  /** The relayer whose gas may be paid from the revenue. */
  readonly relayer: Address
}

const ledgerAmountMax = 2n ** 63n - 1n

type TransferRule = {
  readonly type: TransferType
  readonly domain: Hex
  readonly valueMax: bigint
}

/**
 * Decides what may be signed, from the signer's own settings. For every request the signer computes what a correct caller would
 * have asked, and refuses any difference. Nothing is signed just because a caller asks for it.
 */
export class SigningPolicy {
  readonly #terms: SigningTerms
  readonly #limits: SigningLimits
  readonly #payoutAddress: Address | undefined
  readonly #relayer: Address
  readonly #rules: Readonly<Record<TransferOperation, TransferRule>>
  #latestSnapshot: { readonly number: bigint; readonly digest: Hex } | undefined

  constructor({ terms, limits, payoutAddress, relayer }: PolicyOptions) {
    this.#terms = terms
    this.#limits = limits
    this.#payoutAddress = payoutAddress
    this.#relayer = relayer
    const rule = { type: 'TransferWithAuthorization', domain: gatewayDomain(terms) } as const
    this.#rules = {
      authorization: { ...rule, valueMax: limits.authorizationMax },
      // Credit is returned in order to be withdrawn, so the limits are equal: with a lower one, a withdrawal could be accepted and
      // never paid.
      return: { ...rule, valueMax: payOutMax },
      refund: { ...rule, valueMax: payOutMax },
      // Only the gateway can execute it, and it credits the account that signed: any amount is safe.
      deposit: {
        type: 'ReceiveWithAuthorization',
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
    requireEqual('wrong_from', 'from', message.from, isOfSeller(operation) ? this.#terms.seller : account)
    // The account of a wallet is named by its address: a refund cannot go to another one.
    if (operation === 'refund') requireEqual('wrong_to', 'account', request.account, walletAccountId(message.to))
    else requireEqual('wrong_to', 'to', message.to, this.#recipient(operation, account))
    const nonce = nonceOf(operation, request.account, request.epoch, request.sequence)
    requireEqual('wrong_nonce', 'nonce', message.nonce, nonce)
    requireValue(message.value, rule.valueMax)
    requireWindow(message, Math.floor(nowMs / 1000))
    return transferDigest(rule.domain, rule.type, message)
  }

  withdrawal(request: WithdrawalRequest, account: Address, owner: Address | undefined): Buffer {
    if (owner === undefined) throw new SigningRefusedError('no_owner', 'no owner of the account is in effect yet')
    this.requireOwner(owner, account)
    return this.#intent(request.intent, account, owner, saltOf('withdrawal', request.withdrawal))
  }

  payout(request: PayoutRequest): Buffer {
    const isRefill = this.isRefill(request)
    // The relayer's key is handed out: without this limit an attacker could have all revenue sent there.
    if (isRefill) requireValue(request.intent.spec.value, this.#limits.refillMax)
    const recipient = isRefill ? this.#relayer : this.#payoutAddress
    if (recipient === undefined) throw new SigningRefusedError('no_payout_address', 'no payout address is configured')
    return this.#intent(request.intent, this.#terms.seller, recipient, saltOf('payout', request.payout))
  }

  isRefill({ intent }: PayoutRequest): boolean {
    return intent.spec.destinationRecipient.endsWith(this.#relayer.slice(2))
  }

  receipt(structHash: Hex): Buffer {
    return digest(receiptDomain(this.#terms), Buffer.from(structHash.slice(2), 'hex'))
  }

  /**
   * A second tree of one number is never signed while this process runs; and a number is the current minute, so that a signer that was
   * restarted can repeat only the latest ones.
   */
  liabilities(snapshot: Snapshot, nowMs: number): Buffer {
    const { number, time, sum, onChain } = snapshot
    requireEqual('wrong_snapshot', 'number', number, snapshotNumber(time))
    if (Math.abs(Number(time) - nowMs) > clockSkewSecondsMax * 1000)
      throw new SigningRefusedError('wrong_snapshot', `time is ${time}; it is ${nowMs}`)
    if (sum > sumMax || onChain > sumMax)
      throw new SigningRefusedError('value_out_of_range', `sum is ${sum}, on chain ${onChain}; the limit is ${sumMax}`)
    const bytes = snapshotDigest(snapshot, { ...this.#terms, chainId: BigInt(this.#terms.chainId) }, keccak256)
    const latest = this.#latestSnapshot
    const digest = toHex(bytes)
    if (latest !== undefined && number <= latest.number && digest !== latest.digest)
      throw new SigningRefusedError('wrong_snapshot', `snapshot ${latest.number} was signed; ${number} is not after it`)
    this.#latestSnapshot = { number, digest }
    return Buffer.from(bytes)
  }

  /** Refuses addresses at which money would be lost, or would come back to the service. */
  requireOwner(owner: Address, account: Address): void {
    const { usdc, gatewayWallet, gatewayMinter, seller } = this.#terms
    if ([zeroAddress, usdc.address, gatewayWallet, gatewayMinter, seller, account].includes(owner)) {
      throw new SigningRefusedError('bad_owner', `${owner} cannot be the address of an owner`)
    }
  }

  #recipient(operation: Exclude<TransferOperation, 'refund'>, account: Address): Address {
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
      throw new SigningRefusedError('fee_above_cap', `fee is ${maxFee}; the limit is ${this.#limits.withdrawalFeeMax}`)
    }
    return burnIntentDigest(expected)
  }
}

/** Signed with the seller's key. */
export function isOfSeller(operation: TransferOperation): boolean {
  return operation === 'return' || operation === 'refund'
}

type Plain = string | number | bigint

function requireEqual(
  reason: SigningRefusedError['reason'],
  field: string,
  asked: Plain | undefined,
  expected: Plain,
): void {
  if (asked !== expected) throw new SigningRefusedError(reason, `${field} is ${asked}; expected ${expected}`)
}

function requireValue(value: bigint, max: bigint): void {
  if (value <= 0n || value > max) {
    throw new SigningRefusedError('value_out_of_range', `value is ${value}; allowed are 1 to ${max}`)
  }
}

/** The window must not start in the future, so that nothing can be signed today for use in a year, and must not be over. */
function requireWindow(window: { validAfter: number; validBefore: number }, nowSeconds: number): void {
  const decided = decidedSecondsOf(window)
  if (decided !== undefined && decided <= nowSeconds + clockSkewSecondsMax && window.validBefore > nowSeconds) return
  const { validAfter, validBefore } = window
  throw new SigningRefusedError('wrong_window', `open from ${validAfter} to ${validBefore}; it is ${nowSeconds}`)
}
