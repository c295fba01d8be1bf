import { type Hex, hashTypedData, keccak256 } from 'viem'

/**
 * What the service says about one ended request, for good: the numbers of its row, chained to the account's receipt before
 * it. Pure, and the same in the settlement process, in `penny verify` and in the browser.
 */
export type Receipt = {
  readonly request: string
  /** The account's address: who pays on chain. */
  readonly payer: Hex
  /** Counts the account's receipts from 1. */
  readonly number: bigint
  /** The hash of the receipt before this one; zeros for the first. */
  readonly previous: Hex
  /** Milliseconds since 1970. */
  readonly createdAt: bigint
  readonly endedAt: bigint
  readonly status: string
  readonly model: string
  readonly prices: string
  readonly promptTokens: bigint
  readonly completionTokens: bigint
  readonly searchCalls: bigint
  readonly quote: bigint
  readonly charged: bigint
  /** What was authorized on chain for it, and under which nonce; zeros when credit paid. */
  readonly authorized: bigint
  readonly nonce: Hex
}

export type ReceiptDomain = { readonly chainId: number; readonly gatewayWallet: Hex }

export const noHash: Hex = `0x${'0'.repeat(64)}`

export const receiptTypes = {
  Receipt: [
    { name: 'request', type: 'string' },
    { name: 'payer', type: 'address' },
    { name: 'number', type: 'uint256' },
    { name: 'previous', type: 'bytes32' },
    { name: 'createdAt', type: 'uint256' },
    { name: 'endedAt', type: 'uint256' },
    { name: 'status', type: 'string' },
    { name: 'model', type: 'string' },
    { name: 'prices', type: 'string' },
    { name: 'promptTokens', type: 'uint256' },
    { name: 'completionTokens', type: 'uint256' },
    { name: 'searchCalls', type: 'uint256' },
    { name: 'quote', type: 'uint256' },
    { name: 'charged', type: 'uint256' },
    { name: 'authorized', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const

export function typedReceipt(receipt: Receipt, { chainId, gatewayWallet }: ReceiptDomain) {
  return {
    domain: { name: 'PennyReceipt', version: '1', chainId, verifyingContract: gatewayWallet },
    types: receiptTypes,
    primaryType: 'Receipt',
    message: receipt,
  } as const
}

/** The receipt's identity: what is chained, put under the batch's root, and signed. */
export function receiptHash(receipt: Receipt, domain: ReceiptDomain): Hex {
  return hashTypedData(typedReceipt(receipt, domain))
}

/** Climbs from a receipt to the root of its batch: leaves are hashed once more, pairs are sorted. */
export function rootOf(hash: Hex, proof: readonly Hex[]): Hex {
  return proof.reduce((node, sibling) => parent(node, sibling), keccak256(hash))
}

function parent(left: Hex, right: Hex): Hex {
  return left < right ? keccak256(`${left}${right.slice(2)}`) : keccak256(`${right}${left.slice(2)}`)
}

/** A receipt as it is handed out: all numbers as text, with what proves it. */
export type ReceiptDocument = {
  readonly object: 'receipt'
  readonly version: 1
  readonly receipt: { readonly [Name in keyof Receipt]: string }
  readonly domain: { readonly chain_id: number; readonly gateway_wallet: Hex }
  readonly hash: Hex
  readonly issuer: Hex
  readonly signature: Hex
  /** Absent until its payment is on chain, and for requests that credit paid. */
  readonly batch?: {
    readonly id: string
    readonly tx_hash: Hex
    readonly root: Hex
    readonly proof: readonly Hex[]
  }
}

export function writeReceipt(receipt: Receipt): ReceiptDocument['receipt'] {
  return Object.fromEntries(
    Object.entries(receipt).map(([name, value]) => [name, value.toString()]),
  ) as ReceiptDocument['receipt']
}

const numbers = [
  'number',
  'createdAt',
  'endedAt',
  'promptTokens',
  'completionTokens',
  'searchCalls',
  'quote',
  'charged',
  'authorized',
] as const

const hexDigits = { payer: 40, previous: 64, nonce: 64 } as const

/** Reads what `writeReceipt` wrote. Throws when a field is missing, is not what it must be, or is not the receipt's. */
export function readReceipt(text: ReceiptDocument['receipt']): Receipt {
  for (const { name } of receiptTypes.Receipt) {
    if (typeof text?.[name] !== 'string') throw new InvalidReceiptError(`${name} is missing`)
  }
  for (const name of Object.keys(text)) {
    if (!receiptTypes.Receipt.some((field) => field.name === name)) {
      throw new InvalidReceiptError(`${name.slice(0, 40)} is no field of it`)
    }
  }
  for (const [name, digits] of Object.entries(hexDigits)) {
    const value = text[name as keyof typeof hexDigits]
    if (!new RegExp(`^0x[0-9a-f]{${digits}}$`).test(value)) throw new InvalidReceiptError(`${name} is no hash`)
  }
  const read = Object.fromEntries(
    numbers.map((name) => {
      if (!/^(0|[1-9]\d{0,29})$/.test(text[name])) throw new InvalidReceiptError(`${name} is no number`)
      return [name, BigInt(text[name])]
    }),
  )
  const { request, payer, previous, status, model, prices, nonce } = text
  return { request, payer, previous, status, model, prices, nonce, ...read } as Receipt
}

export class InvalidReceiptError extends Error {
  constructor(why: string) {
    super(`This is no receipt: ${why}.`)
    this.name = 'InvalidReceiptError'
  }
}
