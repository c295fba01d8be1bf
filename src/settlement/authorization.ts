import type { Usdc } from '../money/usdc.ts'
import { type Address, checksummed, type Hex } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { TransferRequest } from '../signer/signing-request.ts'
import {
  gatewayDomain,
  gatewayDomainName,
  gatewayDomainVersion,
  type SigningTerms,
  windowOf,
} from '../signer/signing-terms.ts'
import { transferDigest } from '../signer/typed-data.ts'

/** What the ledger decided when it placed the hold, and the epoch that was kept with its receipt. */
export type AuthorizationDecision = {
  readonly accountId: string
  /** The account's custodial address. */
  readonly address: Address
  /** Undefined when credit covered the quote: nothing is authorized then. */
  readonly nonce: bigint | undefined
  readonly epoch: number
  readonly authorized: Usdc
  /** By the database's clock; the window follows from it. */
  readonly createdAt: Date
}

/** To whom and where authorizations of this installation pay. */
export type PaymentTerms = {
  readonly chainId: number
  readonly usdcAddress: Address
  readonly gatewayWallet: Address
  readonly seller: Address
  /**
   * Raised when the ledger was restored from an older copy, whose sequences must not be used again. It is that of new receipts;
   * what has its receipt keeps the epoch of that.
   */
  readonly epoch: number
  /** The hash of the gateway's domain, computed once. */
  readonly domain: Hex
}

export type Authorization = TransferRequest<'authorization'>

// What Circle's own client asks for: seven days and a little.
const maxTimeoutSeconds = 604_900

export function paymentTerms(terms: SigningTerms, epoch: number): PaymentTerms {
  const { chainId, usdc, gatewayWallet, seller } = terms
  return { chainId, usdcAddress: usdc.address, gatewayWallet, seller, epoch, domain: gatewayDomain(terms) }
}

/**
 * The authorization of a hold. It is a pure function of the decision: however often it is made, on whichever node, it is the same
 * to the byte, and so is its signature. Undefined when the decision authorizes nothing.
 */
export function authorizationOf(decision: AuthorizationDecision, terms: PaymentTerms): Authorization | undefined {
  if (decision.nonce === undefined || decision.authorized <= 0n) return undefined
  return {
    operation: 'authorization',
    account: decision.accountId,
    epoch: decision.epoch,
    sequence: decision.nonce,
    domain: terms.domain,
    message: {
      from: decision.address,
      to: terms.seller,
      value: decision.authorized,
      ...windowOf(decision.createdAt),
      nonce: nonceOf('authorization', decision.accountId, decision.epoch, decision.nonce),
    },
  }
}

/** What the account's key signs. */
export function authorizationDigest({ domain, message }: Authorization): Buffer {
  return transferDigest(domain, 'TransferWithAuthorization', message)
}

/** x402 v2: what has to be paid, and how. Circle's gateway and ours want it beside the payload and inside it. */
export type PaymentRequirements = {
  readonly scheme: 'exact'
  readonly network: `eip155:${number}`
  readonly asset: Hex
  readonly amount: string
  readonly payTo: Hex
  readonly maxTimeoutSeconds: number
  readonly extra: { readonly name: string; readonly version: string; readonly verifyingContract: Hex }
}

/** x402 v2: the payment itself. All numbers are decimal text. */
export type PaymentPayload = {
  readonly x402Version: 2
  readonly resource: PaidResource
  readonly accepted: PaymentRequirements
  readonly payload: {
    readonly authorization: {
      readonly from: Hex
      readonly to: Hex
      readonly value: string
      readonly validAfter: string
      readonly validBefore: string
      readonly nonce: Hex
    }
    readonly signature: Hex
  }
}

export type PaidResource = { readonly url: string; readonly description: string; readonly mimeType: string }

export function paymentRequirements({ message }: Authorization, terms: PaymentTerms): PaymentRequirements {
  return {
    scheme: 'exact',
    network: `eip155:${terms.chainId}`,
    asset: checksummed(terms.usdcAddress),
    amount: message.value.toString(),
    payTo: checksummed(message.to),
    maxTimeoutSeconds,
    extra: {
      name: gatewayDomainName,
      version: gatewayDomainVersion,
      verifyingContract: checksummed(terms.gatewayWallet),
    },
  }
}

/** The body of `verify` and `settle` carries this and the requirements. */
export function paymentPayload(
  authorization: Authorization,
  signature: Hex,
  terms: PaymentTerms,
  resource: PaidResource,
): PaymentPayload {
  const { from, to, value, validAfter, validBefore, nonce } = authorization.message
  return {
    x402Version: 2,
    resource,
    accepted: paymentRequirements(authorization, terms),
    payload: {
      authorization: {
        from: checksummed(from),
        to: checksummed(to),
        value: value.toString(),
        validAfter: validAfter.toString(),
        validBefore: validBefore.toString(),
        nonce,
      },
      signature,
    },
  }
}
