import type { Hex } from '../receipts/hex.ts'
import type { Address } from './address.ts'
import { keccak256 } from './keccak.ts'

// EIP-712 for the few structures that this service signs. Their type hashes are computed once.

export type TypedDomain = {
  readonly name: string
  readonly version: string
  /** Circle's burn intents are signed under a domain without chain and contract; the intent itself contains both. */
  readonly chainId?: number
  readonly verifyingContract?: Address
}

/** EIP-3009: a transfer that any holder of the signature can execute, once, within its window. */
export type TransferMessage = {
  readonly from: Address
  readonly to: Address
  readonly value: bigint
  /** Seconds since 1970; both bounds are exclusive. */
  readonly validAfter: number
  readonly validBefore: number
  readonly nonce: Hex
}

/** `Receive…` differs from `Transfer…` in one point: only the recipient can execute it. */
export type TransferType = 'TransferWithAuthorization' | 'ReceiveWithAuthorization'

/** An instruction to Circle's gateway, or ours, to pay out of a deposit. Addresses are left-padded to 32 bytes. */
export type BurnIntent = {
  readonly maxBlockHeight: bigint
  readonly maxFee: bigint
  readonly spec: TransferSpec
}

export type TransferSpec = {
  readonly version: number
  readonly sourceDomain: number
  readonly destinationDomain: number
  readonly sourceContract: Hex
  readonly destinationContract: Hex
  readonly sourceToken: Hex
  readonly destinationToken: Hex
  readonly sourceDepositor: Hex
  readonly destinationRecipient: Hex
  readonly sourceSigner: Hex
  readonly destinationCaller: Hex
  readonly value: bigint
  readonly salt: Hex
  readonly hookData: Hex
}

const wordBytes = 32
const wordMax = 2n ** 256n - 1n

const transferFields = 'address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce'
const specType =
  'TransferSpec(uint32 version,uint32 sourceDomain,uint32 destinationDomain,bytes32 sourceContract,bytes32 destinationContract,bytes32 sourceToken,bytes32 destinationToken,bytes32 sourceDepositor,bytes32 destinationRecipient,bytes32 sourceSigner,bytes32 destinationCaller,uint256 value,bytes32 salt,bytes hookData)'

const transferTypeHashes: Readonly<Record<TransferType, Buffer>> = {
  TransferWithAuthorization: keccak256(`TransferWithAuthorization(${transferFields})`),
  ReceiveWithAuthorization: keccak256(`ReceiveWithAuthorization(${transferFields})`),
}
/** The first bytes of keccak256 of `circle.gateway.TransferSpec`. */
const specMagic = 'ca85def7'
const specTypeHash = keccak256(specType)
const intentTypeHash = keccak256(`BurnIntent(uint256 maxBlockHeight,uint256 maxFee,TransferSpec spec)${specType}`)
const intentDomain = domainSeparator({ name: 'GatewayWallet', version: '1' })

export function domainSeparator({ name, version, chainId, verifyingContract }: TypedDomain): Hex {
  const types = ['string name', 'string version']
  const words: Word[] = [keccak256(name), keccak256(version)]
  if (chainId !== undefined) {
    types.push('uint256 chainId')
    words.push(chainId)
  }
  if (verifyingContract !== undefined) {
    types.push('address verifyingContract')
    words.push(verifyingContract)
  }
  return `0x${hashWords([keccak256(`EIP712Domain(${types.join(',')})`), ...words]).toString('hex')}`
}

export function transferDigest(domain: Hex, type: TransferType, message: TransferMessage): Buffer {
  const { from, to, value, validAfter, validBefore, nonce } = message
  return digest(domain, hashWords([transferTypeHashes[type], from, to, value, validAfter, validBefore, nonce]))
}

/**
 * The hash by which Circle's contracts identify a transfer, in `GatewayBurned` and in the minter: of its encoding, not of the structure
 * that is signed.
 */
export function encodedSpecHash(spec: TransferSpec): Hex {
  const { version, sourceDomain, destinationDomain, hookData } = spec
  const words = [
    spec.sourceContract,
    spec.destinationContract,
    spec.sourceToken,
    spec.destinationToken,
    spec.sourceDepositor,
    spec.destinationRecipient,
    spec.sourceSigner,
    spec.destinationCaller,
    spec.value,
    spec.salt,
  ].map((word) => hexDigits(word).padStart(2 * wordBytes, '0'))
  const hook = hookData.slice(2)
  const numbers = (...values: readonly number[]) => values.map((value) => value.toString(16).padStart(8, '0')).join('')
  const encoded = `${specMagic}${numbers(version, sourceDomain, destinationDomain)}${words.join('')}${numbers(hook.length / 2)}${hook}`
  return `0x${keccak256(Buffer.from(encoded, 'hex')).toString('hex')}`
}

/** The hash of the structure that is signed. Our own contract identifies a withdrawal by it. */
export function transferSpecHash(spec: BurnIntent['spec']): Buffer {
  return hashWords([
    specTypeHash,
    spec.version,
    spec.sourceDomain,
    spec.destinationDomain,
    spec.sourceContract,
    spec.destinationContract,
    spec.sourceToken,
    spec.destinationToken,
    spec.sourceDepositor,
    spec.destinationRecipient,
    spec.sourceSigner,
    spec.destinationCaller,
    spec.value,
    spec.salt,
    keccak256(Buffer.from(spec.hookData.slice(2), 'hex')),
  ])
}

export function burnIntentDigest({ maxBlockHeight, maxFee, spec }: BurnIntent): Buffer {
  return digest(intentDomain, hashWords([intentTypeHash, maxBlockHeight, maxFee, transferSpecHash(spec)]))
}

export function digest(domain: Hex, structHash: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(66)
  bytes.writeUInt16BE(0x1901)
  bytes.write(domain.slice(2), 2, 'hex')
  structHash.copy(bytes, 34)
  return keccak256(bytes)
}

type Word = Buffer | Hex | bigint | number

/** Each value takes a word of 32 bytes; numbers and addresses are right-aligned. */
function hashWords(words: readonly Word[]): Buffer {
  const bytes = Buffer.allocUnsafe(words.length * wordBytes)
  let offset = 0
  for (const word of words) {
    if (Buffer.isBuffer(word)) word.copy(bytes, offset)
    else bytes.write(hexDigits(word).padStart(2 * wordBytes, '0'), offset, 'hex')
    offset += wordBytes
  }
  return keccak256(bytes)
}

function hexDigits(word: Hex | bigint | number): string {
  if (typeof word === 'string') return word.slice(2)
  // A negative or fractional number has no valid encoding, and a wrong word would be signed silently.
  if (word < 0 || word > wordMax || (typeof word === 'number' && !Number.isSafeInteger(word))) {
    throw new RangeError(`${word} is not an unsigned integer of 256 bits`)
  }
  return word.toString(16)
}
