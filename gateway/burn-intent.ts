import { type Address, type Hash, type Hex, hashStruct, hashTypedData, pad } from 'viem'
import { recoverSigner } from './signature.ts'
import { type GatewayTerms, lowerCase } from './terms.ts'

/** A depositor's signed instruction to pay out of its balance, checked by the rules of the contract. */
export type SignedBurnIntent = {
  readonly intent: BurnIntent
  readonly signature: Hex
  readonly specHash: Hash
  readonly depositor: Address
  readonly recipient: Address
}

const specFields = [
  { name: 'version', type: 'uint32' },
  { name: 'sourceDomain', type: 'uint32' },
  { name: 'destinationDomain', type: 'uint32' },
  { name: 'sourceContract', type: 'bytes32' },
  { name: 'destinationContract', type: 'bytes32' },
  { name: 'sourceToken', type: 'bytes32' },
  { name: 'destinationToken', type: 'bytes32' },
  { name: 'sourceDepositor', type: 'bytes32' },
  { name: 'destinationRecipient', type: 'bytes32' },
  { name: 'sourceSigner', type: 'bytes32' },
  { name: 'destinationCaller', type: 'bytes32' },
  { name: 'value', type: 'uint256' },
  { name: 'salt', type: 'bytes32' },
  { name: 'hookData', type: 'bytes' },
] as const
const types = {
  TransferSpec: specFields,
  BurnIntent: [
    { name: 'maxBlockHeight', type: 'uint256' },
    { name: 'maxFee', type: 'uint256' },
    { name: 'spec', type: 'TransferSpec' },
  ],
} as const
// Circle's domain names neither chain nor contract: the spec contains both, and they are checked there.
const domain = { name: 'GatewayWallet', version: '1' }

const defaults: Readonly<Record<string, unknown>> = { hookData: '0x' }
const readers = { uint32: readSmall, uint256: readNumber, bytes32: readWord, bytes: readHex }

export type TransferSpec = {
  readonly [Field in (typeof specFields)[number] as Field['name']]: ReturnType<(typeof readers)[Field['type']]>
}

export type BurnIntent = {
  readonly maxBlockHeight: bigint
  readonly maxFee: bigint
  readonly spec: TransferSpec
}

/** Circle's limit for one request. */
const intentsMax = 16

const zeroWord = `0x${'0'.repeat(64)}`

/** Parses the body of `transfer`: intents with signatures. */
export function readSignedIntents(body: unknown, terms: GatewayTerms, relayer: Address): readonly SignedBurnIntent[] {
  return readList(body).map((entry) => {
    const { burnIntent, signature } = readObject(entry, 'entry')
    return checkSigned(readIntent(burnIntent), readHex(signature, 'signature'), terms, relayer)
  })
}

/** Parses the body of `estimate`: intents that may not be signed yet. */
export function readIntents(body: unknown): readonly BurnIntent[] {
  return readList(body).map((entry) => {
    const fields = readObject(entry, 'entry')
    // Circle's estimate takes bare intents; its transfer takes them next to their signatures.
    return readIntent(fields.burnIntent ?? fields)
  })
}

export function specHashOf(spec: TransferSpec): Hash {
  return hashStruct({ data: spec, primaryType: 'TransferSpec', types })
}

function checkSigned(intent: BurnIntent, signature: Hex, terms: GatewayTerms, relayer: Address): SignedBurnIntent {
  const { spec } = intent
  requireMeantForHere(spec, terms, relayer)
  const recipient = addressIn(spec.destinationRecipient)
  if (recipient === undefined || recipient === terms.wallet || spec.destinationRecipient === zeroWord) {
    throw new IntentRefusedError('destinationRecipient must be an address other than zero and the gateway')
  }
  if (spec.value === 0n) throw new IntentRefusedError('value must be above 0')
  const signer = recoverSigner(hashTypedData({ domain, types, primaryType: 'BurnIntent', message: intent }), signature)
  const depositor = addressIn(spec.sourceDepositor)
  if (signer === undefined || signer !== depositor) {
    throw new IntentRefusedError('the signature is not that of sourceDepositor')
  }
  return { intent, signature, specHash: specHashOf(spec), depositor, recipient }
}

function requireMeantForHere(spec: TransferSpec, terms: GatewayTerms, relayer: Address): void {
  const expected: Partial<Record<keyof TransferSpec, unknown>> = {
    version: 1,
    sourceDomain: terms.chainId,
    destinationDomain: terms.chainId,
    sourceContract: pad(terms.wallet),
    destinationContract: pad(terms.wallet),
    sourceToken: pad(terms.usdc),
    destinationToken: pad(terms.usdc),
    sourceSigner: spec.sourceDepositor,
    destinationCaller: spec.destinationCaller === zeroWord ? zeroWord : pad(relayer),
    hookData: '0x',
  }
  for (const [field, value] of Object.entries(expected)) {
    const found = spec[field as keyof TransferSpec]
    if (found !== value) throw new IntentRefusedError(`${field} must be ${value}, got ${found}`)
  }
}

function addressIn(word: Hex): Address | undefined {
  return /^0x0{24}/.test(word) ? `0x${word.slice(26)}` : undefined
}

function readIntent(value: unknown): BurnIntent {
  const { maxBlockHeight, maxFee, spec } = readObject(value, 'burnIntent')
  const fields = readObject(spec, 'spec')
  return {
    maxBlockHeight: readNumber(maxBlockHeight, 'maxBlockHeight'),
    maxFee: readNumber(maxFee, 'maxFee'),
    spec: Object.fromEntries(
      specFields.map(({ name, type }) => [name, readers[type](fields[name] ?? defaults[name], name)]),
    ) as TransferSpec,
  }
}

function readList(body: unknown): readonly unknown[] {
  if (Array.isArray(body) && body.length >= 1 && body.length <= intentsMax) return body
  throw new IntentRefusedError(`the body must be a list of 1 to ${intentsMax} burn intents`)
}

function readObject(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new IntentRefusedError(`${name} must be an object`)
}

/** Decimal text, or a number that is exact. */
function readNumber(value: unknown, name: string): bigint {
  const text = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value
  if (typeof text === 'string' && /^\d{1,78}$/.test(text) && BigInt(text) < 2n ** 256n) return BigInt(text)
  throw new IntentRefusedError(`${name} must be an unsigned integer of 256 bits in decimal text`)
}

function readSmall(value: unknown, name: string): number {
  const number = readNumber(value, name)
  if (number < 2n ** 32n) return Number(number)
  throw new IntentRefusedError(`${name} must be below 2^32`)
}

function readWord(value: unknown, name: string): Hex {
  const hex = readHex(value, name)
  if (hex.length === 66) return hex
  throw new IntentRefusedError(`${name} must have 32 bytes`)
}

function readHex(value: unknown, name: string): Hex {
  if (typeof value === 'string' && value.length <= 2_048 && /^0x(?:[0-9a-fA-F]{2})*$/.test(value)) {
    return lowerCase(value)
  }
  throw new IntentRefusedError(`${name} must be hex`)
}

/** The intent cannot be executed as it is. */
export class IntentRefusedError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'IntentRefusedError'
  }
}
