import { transferGas } from '../ledger/refunds.ts'
import { fromAtomic, max, type Usdc, zero } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import type { PaymentRequirements } from '../settlement/authorization.ts'
import { paymentRequirementsOf } from '../settlement/authorization.ts'
import { gatewayDomain, type SigningTerms } from '../signer/signing-terms.ts'

/** What all payments to this service have in common. */
export type X402Terms = {
  readonly signing: SigningTerms
  readonly network: `eip155:${number}`
  /** The hash of the gateway's domain, computed once. */
  readonly domain: Hex
  /** Without a trailing slash. */
  readonly publicUrl: string
}

export function x402Terms(signing: SigningTerms, publicUrl: string): X402Terms {
  return { signing, network: `eip155:${signing.chainId}`, domain: gatewayDomain(signing), publicUrl }
}

/** A smaller payment would cost the relayer more gas than it is worth. Our gateway has the same minimum for clients without the token. */
export const paymentMin = transferGas

/**
 * What a request must pay beyond its wallet's credit: nothing, or at least `paymentMin`. The part that it does not use becomes credit.
 */
export function amountToPay(quote: Usdc, credit: Usdc): Usdc {
  return credit >= quote ? zero : max(fromAtomic(quote - credit), paymentMin)
}

/** x402 v2: pay this amount to the seller, on the service's chain, by an authorization for the gateway. */
export function requirementsOf({ signing }: X402Terms, amount: bigint): PaymentRequirements {
  const { chainId, usdc, gatewayWallet, seller } = signing
  return paymentRequirementsOf({ chainId, usdcAddress: usdc.address, gatewayWallet }, seller, amount)
}
