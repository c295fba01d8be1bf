import type { Hex } from '../receipts/hex.ts'
import type { Snapshot } from '../receipts/liability-proof.ts'
import { type Address, parseAddress } from './address.ts'
import type { Custodian } from './custodian.ts'
import { recoverAddress } from './secp256k1.ts'
import { SignerFaultError, SignerLine, type SignerLineOptions } from './signer-line.ts'
import {
  encodeRequest,
  type PayoutRequest,
  type RegisteredOwner,
  refusalReasons,
  type SigningAnswer,
  SigningRefusedError,
  type SigningRequest,
  type TransferRequest,
  type WithdrawalRequest,
} from './signing-request.ts'
import { burnIntentDigest, transferDigest } from './typed-data.ts'

/**
 * The only way to get a custodial signature, wherever the keys are. Every request is complete and typed; the signer decides by its
 * own policy. Throws `SigningRefusedError` (the policy forbids it), `SignerUnavailableError` (retry) or `SignerFaultError` (stop,
 * and alert an operator).
 */
export type Signer = {
  addressOf(account: string): Promise<Address>
  sign(request: SignatureRequest): Promise<Hex>
  /** One outcome per request, in order: one refusal does not affect the others. */
  signEach(batch: readonly SignatureRequest[]): Promise<readonly SigningOutcome[]>
  /** Signs with the issuer's key, under the receipts' domain. */
  signReceipt(structHash: Hex): Promise<Hex>
  /** Signs with the issuer's key, under the domain of liabilities. The caller verifies the signature: it knows the issuer. */
  signLiabilities(snapshot: Snapshot): Promise<Hex>
  /** Registers where the account's withdrawals may go; the result says from when on. `immediate` is explained at `OwnerRequest`. */
  registerOwner(account: string, owner: Address, immediate: boolean): Promise<RegisteredOwner>
}

export type SigningOutcome = { readonly signature: Hex } | { readonly refusal: SigningRefusedError }

/** Sends a request to the keys and returns the answer. */
export type AskSigner = (request: SigningRequest) => Promise<SigningAnswer>

export type SignerOptions = {
  readonly ask: AskSigner
  /**
   * Verify every n-th signature of a payment to the seller by recovering its address; all other signatures are always verified.
   * Recovering costs more than twice as much as signing, and the gateway verifies anyway: it refuses a wrong signature.
   */
  readonly checkEvery?: number
  /** Called once. After that this signer gets no more requests, and its answers are ignored. */
  readonly onFault: (error: SignerFaultError) => void
}

const addressesMax = 100_000

export type SignatureRequest = TransferRequest | WithdrawalRequest | PayoutRequest

/** Sends requests, and verifies every answer that can be verified. */
export function createSigner({ ask, checkEvery = 1, onFault }: SignerOptions): Signer {
  const addresses = new Map<string, Address>()
  let fault: SignerFaultError | undefined
  let authorizations = 0

  async function trust<Result>(asked: Promise<SigningAnswer>, read: (answer: SigningAnswer) => Result) {
    try {
      const answer = await asked
      if (fault !== undefined) throw fault
      return read(answer)
    } catch (error) {
      if (error instanceof SignerFaultError && fault === undefined) {
        fault = error
        onFault(error)
      }
      throw error
    }
  }

  function askFor<Result>(request: SigningRequest, read: (answer: SigningAnswer) => Result): Promise<Result> {
    return fault === undefined ? trust(ask(request), read) : Promise.reject(fault)
  }

  function sign(request: SignatureRequest): Promise<Hex> {
    return askFor(request, (answer) => {
      const signature = field(answer, 'signature')
      if (request.operation !== 'authorization') requireSignature(request, signature)
      else {
        if (authorizations % checkEvery === 0) requireSignature(request, signature)
        authorizations += 1
      }
      return signature
    })
  }

  return {
    async addressOf(account) {
      const known = addresses.get(account)
      if (known !== undefined) return known
      const address = await askFor({ operation: 'address', account }, (answer) => readAddress(field(answer, 'address')))
      if (addresses.size >= addressesMax) addresses.clear()
      addresses.set(account, address)
      return address
    },
    sign,
    signEach: (batch) =>
      Promise.all(batch.map((request) => sign(request).then((signature) => ({ signature }), toRefusal))),
    signReceipt: (structHash) => askFor({ operation: 'receipt', structHash }, (answer) => field(answer, 'signature')),
    signLiabilities: (snapshot) =>
      askFor({ operation: 'liabilities', snapshot }, (answer) => field(answer, 'signature')),
    registerOwner: (account, owner, immediate) =>
      askFor({ operation: 'owner', account, owner, immediate }, (answer) => readOwner(field(answer, 'owner'), owner)),
  }
}

/** A client of the signer process of a data folder. Disposing it closes the connection. */
export function openSigner({
  onFault = () => {},
  checkEvery = 1,
  ...options
}: SignerLineOptions & Partial<Pick<SignerOptions, 'onFault' | 'checkEvery'>>): Signer & Disposable {
  const line = new SignerLine(options)
  return {
    ...createSigner({ ask: (request) => line.ask(request), checkEvery, onFault }),
    [Symbol.dispose]: () => line.close(),
  }
}

/** Uses keys in this process, for tests: the same requests, policy and checks, without a socket. */
export function askCustodian(custodian: Custodian): AskSigner {
  return async (request) => custodian.answer(JSON.parse(encodeRequest(request)))
}

function toRefusal(error: unknown): SigningOutcome {
  if (error instanceof SigningRefusedError) return { refusal: error }
  throw error
}

type Field = 'signature' | 'address' | 'owner'
type FieldOf<Name extends Field> = Extract<SigningAnswer, Record<Name, unknown>>[Name & keyof SigningAnswer]

function field<Name extends Field>(answer: SigningAnswer, name: Name): FieldOf<Name> {
  if (typeof answer !== 'object' || answer === null) throw new SignerFaultError('sent an invalid answer')
  if ('refusal' in answer) {
    const { refusal } = answer
    if (!refusalReasons.includes(refusal?.reason)) throw new SignerFaultError('refused without a reason')
    throw new SigningRefusedError(refusal.reason, String(refusal.message))
  }
  if (!(name in answer)) throw new SignerFaultError(`sent no ${name}`)
  return (answer as Record<Name, FieldOf<Name>>)[name]
}

function requireSignature(request: SignatureRequest, signature: Hex): void {
  const signer = recoverAddress(digestOf(request), signature)
  // An intent holds the address in 32 bytes.
  const expected = 'intent' in request ? `0x${request.intent.spec.sourceSigner.slice(26)}` : request.message.from
  if (signer !== expected) throw new SignerFaultError(`signed by ${signer ?? 'an unknown key'} instead of ${expected}`)
}

function digestOf(request: SignatureRequest): Buffer {
  if ('intent' in request) return burnIntentDigest(request.intent)
  const type = request.operation === 'deposit' ? 'ReceiveWithAuthorization' : 'TransferWithAuthorization'
  return transferDigest(request.domain, type, request.message)
}

function readAddress(text: unknown): Address {
  const address = typeof text === 'string' ? parseAddress(text) : undefined
  if (address === undefined) throw new SignerFaultError('sent an invalid address')
  return address
}

function readOwner(owner: RegisteredOwner, asked: Address): RegisteredOwner {
  if (owner?.address !== asked || !Number.isSafeInteger(owner.usableFromMs)) {
    throw new SignerFaultError('registered another owner')
  }
  return owner
}
