import type { Hex } from '../receipts/hex.ts'
import type { Snapshot } from '../receipts/liability-proof.ts'
import type { Address } from './address.ts'
import { epochMax, sequenceMax, type TransferOperation } from './nonce.ts'
import type { BurnIntent, TransferMessage } from './typed-data.ts'

// All requests that the signer accepts. None of them signs bytes of the caller's choice: an operation that is not listed here
// cannot be signed.

export type SigningRequest =
  | TransferRequest
  | WithdrawalRequest
  | PayoutRequest
  | ReceiptRequest
  | LiabilitiesRequest
  | AddressRequest
  | OwnerRequest

/**
 * Moves money between an account, the seller and the gateway: `authorization` pays the seller, `return` gives credit back to the
 * account, `refund` gives credit back to a wallet that paid in advance, `deposit` moves USDC that arrived at the account's address
 * into the gateway.
 */
export type TransferRequest<Operation extends TransferOperation = TransferOperation> = {
  readonly operation: Operation
  readonly account: string
  /** The nonce is derived from epoch, sequence and account. */
  readonly epoch: number
  readonly sequence: bigint
  /** The separator of the domain that the caller expects to be signed under. */
  readonly domain: Hex
  readonly message: TransferMessage
}

/** Moves money out of the gateway, to the account's registered owner. */
export type WithdrawalRequest = {
  readonly operation: 'withdrawal'
  readonly account: string
  /** The withdrawal's id. The salt is derived from it. */
  readonly withdrawal: string
  readonly intent: BurnIntent
}

/** Moves the seller's revenue to the operator's configured address. */
export type PayoutRequest = {
  readonly operation: 'payout'
  readonly payout: string
  readonly intent: BurnIntent
}

/**
 * Signs a receipt. The key moves no money, and the domain is used for receipts only: whatever the hash stands for, the signature is
 * worthless anywhere else.
 */
export type ReceiptRequest = { readonly operation: 'receipt'; readonly structHash: Hex }

/** Signs what the service owes at one instant, under a domain of its own. The signer never signs two of one number while it runs. */
export type LiabilitiesRequest = { readonly operation: 'liabilities'; readonly snapshot: Snapshot }

export type AddressRequest = { readonly operation: 'address'; readonly account: string }

/** Registers where an account's withdrawals may go. */
export type OwnerRequest = {
  readonly operation: 'owner'
  readonly account: string
  readonly owner: Address
  /** The account has no money yet, or its holder has confirmed this address: a first address then takes effect immediately. */
  readonly immediate: boolean
}

export type SigningAnswer =
  | { readonly signature: Hex }
  | { readonly address: Address }
  | { readonly owner: RegisteredOwner }
  | { readonly refusal: SigningRefusal }

export type RegisteredOwner = {
  readonly address: Address
  /** Withdrawals may go there from this time on; milliseconds since 1970. */
  readonly usableFromMs: number
}

export type SigningRefusal = {
  readonly reason: RefusalReason
  /** For the operator: names the field and both values. */
  readonly message: string
}

export const refusalReasons = [
  'malformed',
  'unknown_operation',
  'wrong_domain',
  'wrong_from',
  'wrong_to',
  'wrong_nonce',
  'wrong_window',
  'wrong_intent',
  'wrong_snapshot',
  'value_out_of_range',
  'fee_above_cap',
  'hour_cap',
  'seller_not_held',
  'no_payout_address',
  'no_owner',
  'bad_owner',
  'owner_pending',
  'owner_too_often',
  'failed',
] as const
export type RefusalReason = (typeof refusalReasons)[number]

/** The most requests in one line between the service and the signer. */
export const batchMax = 32

/** The request as sent over the socket: plain JSON, with potentially large numbers as decimal text. */
export function encodeRequest(request: SigningRequest): string {
  return JSON.stringify(request, (_, value: unknown) => (typeof value === 'bigint' ? value.toString() : value))
}

/** Parses a request from the socket. Refuses it unless it has exactly the expected fields. */
export function parseRequest(value: unknown): SigningRequest {
  const operation = (value as { operation?: unknown } | null | undefined)?.operation
  switch (operation) {
    case 'authorization':
    case 'return':
    case 'refund':
    case 'deposit':
      return parseTransfer(operation, value)
    case 'withdrawal': {
      const fields = only(value, ['operation', 'account', 'withdrawal', 'intent'])
      const [account, withdrawal] = [uuid(fields, 'account'), uuid(fields, 'withdrawal')]
      return { operation, account, withdrawal, intent: parseIntent(fields.intent) }
    }
    case 'receipt': {
      const fields = only(value, ['operation', 'structHash'])
      return { operation, structHash: bytes32(fields, 'structHash') }
    }
    case 'liabilities': {
      const { snapshot } = only(value, ['operation', 'snapshot'])
      return { operation, snapshot: parseSnapshot(snapshot) }
    }
    case 'payout': {
      const fields = only(value, ['operation', 'payout', 'intent'])
      return { operation, payout: uuid(fields, 'payout'), intent: parseIntent(fields.intent) }
    }
    case 'address':
      return { operation, account: uuid(only(value, ['operation', 'account']), 'account') }
    case 'owner': {
      const fields = only(value, ['operation', 'account', 'owner', 'immediate'])
      if (typeof fields.immediate !== 'boolean') throw new MalformedRequestError('immediate')
      const { immediate } = fields
      return { operation, account: uuid(fields, 'account'), owner: address(fields, 'owner'), immediate }
    }
    default:
      throw new SigningRefusedError('unknown_operation', 'not an operation of the signer')
  }
}

function parseTransfer(operation: TransferOperation, value: unknown): TransferRequest {
  const fields = only(value, ['operation', 'account', 'epoch', 'sequence', 'domain', 'message'])
  const message = only(fields.message, ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'])
  return {
    operation,
    account: uuid(fields, 'account'),
    epoch: integer(fields, 'epoch', epochMax),
    sequence: decimal(fields, 'sequence', sequenceMax),
    domain: bytes32(fields, 'domain'),
    message: {
      from: address(message, 'from'),
      to: address(message, 'to'),
      value: decimal(message, 'value', uint256Max),
      validAfter: integer(message, 'validAfter', Number.MAX_SAFE_INTEGER),
      validBefore: integer(message, 'validBefore', Number.MAX_SAFE_INTEGER),
      nonce: bytes32(message, 'nonce'),
    },
  }
}

function parseSnapshot(value: unknown): Snapshot {
  const fields = only(value, ['root', 'previous', ...snapshotIntegers])
  const integers = Object.fromEntries(snapshotIntegers.map((name) => [name, decimal(fields, name, uint256Max)]))
  return {
    ...(integers as Record<(typeof snapshotIntegers)[number], bigint>),
    root: bytes32(fields, 'root'),
    previous: bytes32(fields, 'previous'),
  }
}

function parseIntent(value: unknown): BurnIntent {
  const intent = only(value, ['maxBlockHeight', 'maxFee', 'spec'])
  const spec = only(intent.spec, ['version', 'sourceDomain', 'destinationDomain', ...specWords, 'value', 'hookData'])
  if (spec.hookData !== '0x') throw new MalformedRequestError('hookData')
  const words = Object.fromEntries(specWords.map((name) => [name, bytes32(spec, name)])) as SpecWords
  return {
    maxBlockHeight: decimal(intent, 'maxBlockHeight', uint256Max),
    maxFee: decimal(intent, 'maxFee', uint256Max),
    spec: {
      ...words,
      version: integer(spec, 'version', uint32Max),
      sourceDomain: integer(spec, 'sourceDomain', uint32Max),
      destinationDomain: integer(spec, 'destinationDomain', uint32Max),
      value: decimal(spec, 'value', uint256Max),
      hookData: '0x',
    },
  }
}

const uint32Max = 2 ** 32 - 1
const uint256Max = 2n ** 256n - 1n
const decimalDigitsMax = 78

const snapshotIntegers = ['number', 'time', 'sum', 'leaves', 'block', 'onChain'] as const

const specWords = [
  'sourceContract',
  'destinationContract',
  'sourceToken',
  'destinationToken',
  'sourceDepositor',
  'destinationRecipient',
  'sourceSigner',
  'destinationCaller',
  'salt',
] as const
type SpecWords = Record<(typeof specWords)[number], Hex>

type Fields = Readonly<Record<string, unknown>>

/**
 * Returns an object with no other fields: an unknown field means that the caller expects something that this signer does not do.
 */
function only(value: unknown, names: readonly string[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new MalformedRequestError('request')
  if (Object.keys(value).some((name) => !names.includes(name))) throw new MalformedRequestError('unknown field')
  return value as Fields
}

function text(fields: Fields, name: string, pattern: RegExp): string {
  const value = fields[name]
  if (typeof value !== 'string' || !pattern.test(value)) throw new MalformedRequestError(name)
  return value
}

function uuid(fields: Fields, name: string): string {
  return text(fields, name, /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/)
}

function bytes32(fields: Fields, name: string): Hex {
  return text(fields, name, /^0x[0-9a-f]{64}$/) as Hex
}

function address(fields: Fields, name: string): Address {
  return text(fields, name, /^0x[0-9a-f]{40}$/) as Address
}

function integer(fields: Fields, name: string, max: number): number {
  const value = fields[name]
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > max) {
    throw new MalformedRequestError(name)
  }
  return value
}

function decimal(fields: Fields, name: string, max: bigint): bigint {
  const value = text(fields, name, /^(0|[1-9]\d*)$/)
  if (value.length > decimalDigitsMax || BigInt(value) > max) throw new MalformedRequestError(name)
  return BigInt(value)
}

/** The policy forbids the request. A retry is useless until something else has changed: the hour, the owner, the request. */
export class SigningRefusedError extends Error {
  readonly reason: RefusalReason
  constructor(reason: RefusalReason, message: string) {
    super(message)
    this.name = 'SigningRefusedError'
    this.reason = reason
  }
}

/** Names the field and never its value: it may be a secret that was sent by mistake. */
class MalformedRequestError extends SigningRefusedError {
  constructor(place: string) {
    super('malformed', `not a request of the signer: ${place}`)
  }
}
