import type { Payment } from '../ledger/payments.ts'
import type { Hex } from '../receipts/hex.ts'
import { type Address, checksummed } from '../signer/address.ts'
import type { TransferRequest } from '../signer/signing-request.ts'
import {
  gatewayDomain,
  gatewayDomainName,
  gatewayDomainVersion,
  type SigningTerms,
  windowOf,
} from '../signer/signing-terms.ts'
import { type TransferMessage, transferDigest } from '../signer/typed-data.ts'
import { paymentNonce } from './payment-receipt.ts'

/** The seller, chain and contracts that authorizations of this installation name. */
export type PaymentTerms = {
  readonly chainId: number
  readonly usdcAddress: Address
  readonly gatewayWallet: Address
  readonly seller: Address
  /** The epoch of new payments; earlier ones keep theirs. Changed only as the last resort after a restore: docs/runbooks/backup.md. */
  readonly epoch: number
  /** The hash of the gateway's domain, computed once. */
  readonly domain: Hex
}

export type Authorization = TransferRequest<'authorization'>
export type Return = TransferRequest<'return'>

// As in Circle's own client: seven days and a margin.
const maxTimeoutSeconds = 604_900

export function paymentTerms(terms: SigningTerms, epoch: number): PaymentTerms {
  const { chainId, usdc, gatewayWallet, seller } = terms
  return { chainId, usdcAddress: usdc.address, gatewayWallet, seller, epoch, domain: gatewayDomain(terms) }
}

/**
 * The authorization of a payment: from the account to the seller, or from the seller to the account when the sum is negative. A pure
 * function of the payment: every node computes the same bytes, and so the same signature.
 */
export function authorizationOf(payment: Payment, terms: PaymentTerms): Authorization | Return {
  const address = payment.address as Address
  const { accountId: account, epoch, number: sequence } = payment
  const isReturn = payment.value < 0n
  const [from, to] = isReturn ? [terms.seller, address] : [address, terms.seller]
  const value = isReturn ? -payment.value : payment.value
  const message = { from, to, value, ...windowOf(payment.authorizedAt), nonce: paymentNonce(payment) }
  const request = { account, epoch, sequence, domain: terms.domain, message }
  return isReturn ? { operation: 'return', ...request } : { operation: 'authorization', ...request }
}

/** The digest that the account's key signs. */
export function authorizationDigest({ domain, message }: Authorization | Return): Buffer {
  return transferDigest(domain, 'TransferWithAuthorization', message)
}

/** x402 v2: what must be paid, and how. Gateways expect it both next to and inside the payload. */
export type PaymentRequirements = {
  readonly scheme: 'exact'
  readonly network: `eip155:${number}`
  readonly asset: Hex
  readonly amount: string
  readonly payTo: Hex
  readonly maxTimeoutSeconds: number
  readonly extra: { readonly name: string; readonly version: string; readonly verifyingContract: Hex }
}

/** x402 v2: the payment itself. All numbers are decimal strings. */
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

export function paymentRequirementsOf(
  { chainId, usdcAddress, gatewayWallet }: Pick<PaymentTerms, 'chainId' | 'usdcAddress' | 'gatewayWallet'>,
  to: Address,
  value: bigint,
): PaymentRequirements {
  return {
    scheme: 'exact',
    network: `eip155:${chainId}`,
    asset: checksummed(usdcAddress),
    amount: value.toString(),
    payTo: checksummed(to),
    maxTimeoutSeconds,
    extra: {
      name: gatewayDomainName,
      version: gatewayDomainVersion,
      verifyingContract: checksummed(gatewayWallet),
    },
  }
}

/** What `settle` of the gateway takes. */
export type Submittal = { readonly paymentPayload: PaymentPayload; readonly paymentRequirements: PaymentRequirements }

export function submittalOf(
  message: TransferMessage,
  signature: Hex,
  { terms, resource }: { readonly terms: PaymentTerms; readonly resource: PaidResource },
): Submittal {
  const accepted = paymentRequirementsOf(terms, message.to, message.value)
  return { paymentPayload: signedPayload(message, signature, accepted, resource), paymentRequirements: accepted }
}

export function signedPayload(
  { from, to, value, validAfter, validBefore, nonce }: TransferMessage,
  signature: Hex,
  accepted: PaymentRequirements,
  resource: PaidResource,
): PaymentPayload {
  return {
    x402Version: 2,
    resource,
    accepted,
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
