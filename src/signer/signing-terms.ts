import type { Hex } from '../receipts/hex.ts'
import type { Address } from './address.ts'
import { type BurnIntent, domainSeparator } from './typed-data.ts'

/** The limits of where money may move: one chain, one token, one gateway, one seller. */
export type SigningTerms = {
  readonly chainId: number
  readonly usdc: { readonly address: Address; readonly name: string; readonly version: string }
  readonly gatewayWallet: Address
  /** The contract that pays withdrawals: Circle's minter, or the wallet itself on our own gateway. */
  readonly gatewayMinter: Address
  /** The gateway's number for this chain: 26 for Arc at Circle, the chain id on our own gateway. */
  readonly gatewayDomain: number
  readonly seller: Address
}

export const gatewayDomainName = 'GatewayWalletBatched'
export const gatewayDomainVersion = '1'

// The verifier's clock may be behind ours, and the verifier requires at least seven days to be left.
const validBeforeNowSeconds = 600
const validAfterNowSeconds = 8 * 24 * 60 * 60

/** The database's clock sets the window. It may be ahead of ours by this much. */
export const clockSkewSecondsMax = 600

/** The gateway accepts an authorization for the first day of its window. Half of that day is kept in reserve. */
const submittableSeconds = 12 * 60 * 60

/** Length of every authorization's validity window. */
export const windowSeconds = validBeforeNowSeconds + validAfterNowSeconds

export type ValidityWindow = { readonly validAfter: number; readonly validBefore: number }

/** The window for a decision at that time. It depends only on the row, so that signing again gives the same bytes. */
export function windowOf(decidedAt: Date): ValidityWindow {
  const seconds = Math.floor(decidedAt.getTime() / 1000)
  return { validAfter: seconds - validBeforeNowSeconds, validBefore: seconds + validAfterNowSeconds }
}

/** Whether the signer signs and the gateway accepts the window for a decision at that time: it is neither old nor in the future. */
export function isWindowUsable(decidedAt: Date): boolean {
  const ageSeconds = (Date.now() - decidedAt.getTime()) / 1000
  return ageSeconds < submittableSeconds && ageSeconds >= -clockSkewSecondsMax
}

/** The time for which a window was made, in seconds since 1970; undefined when the window does not have the standard length. */
export function decidedSecondsOf({ validAfter, validBefore }: ValidityWindow): number | undefined {
  return validBefore - validAfter === windowSeconds ? validAfter + validBeforeNowSeconds : undefined
}

/** Authorizations are signed for the gateway, which nets them; the token contract never sees them. */
export function gatewayDomain({ chainId, gatewayWallet }: Pick<SigningTerms, 'chainId' | 'gatewayWallet'>): Hex {
  return domainSeparator({
    name: gatewayDomainName,
    version: gatewayDomainVersion,
    chainId,
    verifyingContract: gatewayWallet,
  })
}

export function usdcDomain({ chainId, usdc }: Pick<SigningTerms, 'chainId' | 'usdc'>): Hex {
  return domainSeparator({ name: usdc.name, version: usdc.version, chainId, verifyingContract: usdc.address })
}

/** Receipts are signed for people and programs, never for a contract. */
export function receiptDomain({ chainId, gatewayWallet }: Pick<SigningTerms, 'chainId' | 'gatewayWallet'>): Hex {
  return domainSeparator({ name: 'PennyReceipt', version: '2', chainId, verifyingContract: gatewayWallet })
}

/**
 * The most that one withdrawal or payout may pay, in atomic units. The hourly limit of an account is the same, so more could never
 * pass.
 */
export const payOutMax = 100_000_000_000n

/** A refill of the relayer's gas is at most this many times the balance below which it is refilled. */
export const refillFactorMax = 5n

export type PayingOut = {
  readonly depositor: Address
  readonly recipient: Address
  readonly value: bigint
  readonly maxFee: bigint
  readonly salt: Hex
}

// An intent is void after this block height. Ours never expires: its outcome is always queried.
const maxBlockHeight = 2n ** 256n - 1n

/** The only form in which money leaves the gateway: same chain, same token, no delegate, no hook, no expiry. */
export function burnIntent(terms: SigningTerms, paying: PayingOut): BurnIntent {
  return {
    maxBlockHeight,
    maxFee: paying.maxFee,
    spec: {
      version: 1,
      sourceDomain: terms.gatewayDomain,
      destinationDomain: terms.gatewayDomain,
      sourceContract: padded(terms.gatewayWallet),
      destinationContract: padded(terms.gatewayMinter),
      sourceToken: padded(terms.usdc.address),
      destinationToken: padded(terms.usdc.address),
      sourceDepositor: padded(paying.depositor),
      destinationRecipient: padded(paying.recipient),
      sourceSigner: padded(paying.depositor),
      // Anyone may submit the intent: it always pays the recipient.
      destinationCaller: padded('0x'),
      value: paying.value,
      salt: paying.salt,
      hookData: '0x',
    },
  }
}

function padded(address: Hex): Hex {
  return `0x${address.slice(2).padStart(64, '0')}`
}
