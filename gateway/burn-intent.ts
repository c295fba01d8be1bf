import { type Address, encodeAbiParameters, type Hash, type Hex, keccak256, pad, toHex } from 'viem'
import { recoverSigner, typedDataDigest } from './signature.ts'
import { type GatewayTerms, lowerCase } from './terms.ts'

/** A depositor's signed instruction to pay out of its balance, checked by the rules of the contract. */
export type SignedBurnIntent = {
  readonly intent: BurnIntent
  readonly signature: Hex
  readonly specHash: Hash
  readonly depositor: Address
  readonly recipient: Address
}

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

/** Circle's limit for one request. */
const intentsMax = 16

const specType =
  'TransferSpec(uint32 version,uint32 sourceDomain,uint32 destinationDomain,bytes32 sourceContract,bytes32 destinationContract,bytes32 sourceToken,bytes32 destinationToken,bytes32 sourceDepositor,bytes32 destinationRecipient,bytes32 sourceSigner,bytes32 destinationCaller,uint256 value,bytes32 salt,bytes hookData)'
const specTypeHash = keccak256(toHex(specType))
const intentTypeHash = keccak256(
  toHex(`BurnIntent(uint256 maxBlockHeight,uint256 maxFee,TransferSpec spec)${specType}`),
)
// Circle's domain names neither chain nor contract: the spec contains both, and they are checked there.
const domainSeparator = keccak256(
  encodeAbiParameters(
    [{ type: 'bytes32' }, { type: 'bytes32' }, { type: 'bytes32' }],
    [
      keccak256(toHex('EIP712Domain(string name,string version)')),
      keccak256(toHex('GatewayWallet')),
      keccak256(toHex('1')),
    ],
  ),
)
const specWords = [
  'bytes32',
  'uint32',
  'uint32',
  'uint32',
  ...Array<string>(8).fill('bytes32'),
  'uint256',
  'bytes32',
  'bytes32',
].map((type) => ({ type }))
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
  return keccak256(
    encodeAbiParameters(specWords, [
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
      keccak256(spec.hookData),
    ]),
  )
}

function checkSigned(intent: BurnIntent, signature: Hex, terms: GatewayTerms, relayer: Address): SignedBurnIntent {
  const { spec } = intent
  requireMeantForHere(spec, terms, relayer)
  const recipient = addressIn(spec.destinationRecipient)
  if (recipient === undefined || recipient === terms.wallet || spec.destinationRecipient === zeroWord) {
    throw new IntentRefusedError('destinationRecipient must be an address other than zero and the gateway')
  }
  if (spec.value === 0n) throw new IntentRefusedError('value must be above 0')
  const specHash = specHashOf(spec)
  const structHash = keccak256(
    encodeAbiParameters(
      [{ type: 'bytes32' }, { type: 'uint256' }, { type: 'uint256' }, { type: 'bytes32' }],
      [intentTypeHash, intent.maxBlockHeight, intent.maxFee, specHash],
    ),
  )
  const signer = recoverSigner(typedDataDigest(domainSeparator, structHash), signature)
  const depositor = addressIn(spec.sourceDepositor)
  if (signer === undefined || signer !== depositor) {
    throw new IntentRefusedError('the signature is not that of sourceDepositor')
  }
  return { intent, signature, specHash, depositor, recipient }
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
    spec: {
      version: readSmall(fields.version, 'version'),
      sourceDomain: readSmall(fields.sourceDomain, 'sourceDomain'),
      destinationDomain: readSmall(fields.destinationDomain, 'destinationDomain'),
      sourceContract: readWord(fields.sourceContract, 'sourceContract'),
      destinationContract: readWord(fields.destinationContract, 'destinationContract'),
      sourceToken: readWord(fields.sourceToken, 'sourceToken'),
      destinationToken: readWord(fields.destinationToken, 'destinationToken'),
      sourceDepositor: readWord(fields.sourceDepositor, 'sourceDepositor'),
      destinationRecipient: readWord(fields.destinationRecipient, 'destinationRecipient'),
      sourceSigner: readWord(fields.sourceSigner, 'sourceSigner'),
      destinationCaller: readWord(fields.destinationCaller, 'destinationCaller'),
      value: readNumber(fields.value, 'value'),
      salt: readWord(fields.salt, 'salt'),
      hookData: readHex(fields.hookData ?? '0x', 'hookData'),
    },
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
