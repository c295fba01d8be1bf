import { z } from 'zod'
import { ServiceError } from '../errors.ts'
import { format } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { isOwnNonce } from '../signer/nonce.ts'
import { recoverAddress } from '../signer/secp256k1.ts'
import { type TransferMessage, transferDigest } from '../signer/typed-data.ts'
import { decodeHeader, encodeHeader } from './header.ts'
import { paymentMin, requirementsOf, type X402Terms } from './terms.ts'

/** A payment as its wallet signed it, checked as far as possible without the gateway. */
export type ReadPayment = {
  readonly message: TransferMessage
  readonly signature: Hex
  /** The id that the client gave its payment (extension `payment-identifier`). It works like an Idempotency-Key. */
  readonly identifier: string | undefined
}

/** The gateway requires seven remaining days, and reports it itself when fewer are left. */
const daySeconds = 24 * 60 * 60
const secondsLeftMin = 7 * daySeconds
/**
 * While the outcome of a payment is unknown, its row stays and counts as owed until the payment expires. Clients sign seven or eight days:
 * 604,900 s is what our 402 asks for, and the least that Circle's client signs.
 */
const secondsLeftMax = 30 * daySeconds
const decimal = z.string().regex(/^(0|[1-9]\d{0,18})$/)
const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/)

const shape = z.object({
  x402Version: z.literal(2),
  accepted: z.object({
    scheme: z.string(),
    network: z.string(),
    asset: address,
    amount: decimal,
    payTo: address,
    extra: z.object({ name: z.string(), version: z.string(), verifyingContract: address }),
  }),
  payload: z.object({
    authorization: z.object({
      from: address,
      to: address,
      value: decimal,
      validAfter: decimal,
      validBefore: decimal,
      nonce: z.string().regex(/^0x[0-9a-fA-F]{64}$/),
    }),
    signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/),
  }),
  extensions: z.looseObject({ 'payment-identifier': z.unknown() }).partial().optional(),
})

const identifierShape = z.object({ info: z.object({ id: z.string().regex(/^[\w-]{16,128}$/) }) })

/** Reads the `PAYMENT-SIGNATURE` header. Throws `PaymentInvalidError`, with the reason that the gateway would give. */
export function readPayment(header: string, terms: X402Terms, nowMs: number): ReadPayment {
  const parsed = shape.safeParse(decodeHeader(header))
  if (!parsed.success) throw new MalformedPaymentError(parsed.error.issues[0]?.path.join('.') ?? '')
  const { accepted, payload, extensions } = parsed.data
  const { authorization } = payload
  const expected = requirementsOf(terms, BigInt(accepted.amount))
  const refuse = (reason: string, message: string) => {
    throw new PaymentInvalidError(terms, reason, message)
  }
  if (accepted.scheme !== expected.scheme) refuse('unsupported_scheme', `the scheme is ${expected.scheme}`)
  if (accepted.network !== expected.network) refuse('unsupported_network', `the network is ${expected.network}`)
  if (!isSame(accepted.asset, expected.asset)) refuse('unsupported_asset', `the asset is ${expected.asset}`)
  const { name, version, verifyingContract } = expected.extra
  const { extra } = accepted
  if (extra.name !== name || extra.version !== version || !isSame(extra.verifyingContract, verifyingContract)) {
    refuse('unsupported_domain', `the domain is ${name} ${version} of ${verifyingContract}`)
  }
  if (!isSame(accepted.payTo, expected.payTo) || !isSame(authorization.to, expected.payTo)) {
    refuse('address_mismatch', `it must pay ${expected.payTo}`)
  }
  if (authorization.value !== accepted.amount) refuse('amount_mismatch', 'the signed value differs from the amount')
  if (BigInt(authorization.value) < paymentMin) {
    const value = format(BigInt(authorization.value))
    refuse('amount_too_small', `it is worth ${value} USDC; the smallest payment is ${format(paymentMin)} USDC`)
  }
  if (BigInt(authorization.value) > 2n ** 63n - 1n) refuse('amount_mismatch', 'the value is too large')
  if (isSame(authorization.from, authorization.to)) refuse('self_transfer', 'payer and payee are the same')
  const message: TransferMessage = {
    from: authorization.from.toLowerCase() as Address,
    to: authorization.to.toLowerCase() as Address,
    value: BigInt(authorization.value),
    validAfter: seconds(authorization.validAfter),
    validBefore: seconds(authorization.validBefore),
    nonce: authorization.nonce.toLowerCase() as Hex,
  }
  const nowSeconds = Math.floor(nowMs / 1000)
  if (message.validAfter >= nowSeconds) refuse('authorization_not_yet_valid', 'its window has not begun')
  if (message.validBefore <= nowSeconds) refuse('authorization_expired', 'its window has ended')
  if (message.validBefore < nowSeconds + secondsLeftMin) {
    refuse('authorization_validity_too_short', 'it must be valid for seven days')
  }
  if (message.validBefore > nowSeconds + secondsLeftMax) {
    const days = Math.ceil((message.validBefore - nowSeconds) / daySeconds)
    refuse('authorization_validity_too_long', `it is valid for ${days} more days; at most 30 are accepted`)
  }
  // Payments of accounts pay this seller too. Our own gateway puts them on chain with their signatures, where anyone can copy them: the
  // gateway would say that it has this payment, and what an account was charged would become credit.
  if (isOwnNonce(message.nonce)) {
    refuse(
      'nonce_already_used',
      'its nonce has the form of payments of this service. Sign a new one with a random nonce',
    )
  }
  const signature = payload.signature.toLowerCase() as Hex
  // The signature is checked here, not only by the gateway: a sender must not be able to make us write a row without a valid signature.
  if (recoverAddress(transferDigest(terms.domain, 'TransferWithAuthorization', message), signature) !== message.from) {
    refuse('invalid_signature', 'the signature is not that of the payer. Smart-contract wallets cannot pay')
  }
  const identifier = identifierShape.safeParse(extensions?.['payment-identifier']).data?.info.id
  return { message, signature, identifier }
}

function seconds(text: string): number {
  return Math.min(Number(text), Number.MAX_SAFE_INTEGER)
}

function isSame(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase()
}

class MalformedPaymentError extends ServiceError {
  constructor(place: string) {
    super(
      'invalid_value',
      `The PAYMENT-SIGNATURE header is not a payment of x402 version 2${place === '' ? '' : ` (${place})`}. Nothing was paid.`,
      { param: 'payment-signature' },
    )
  }
}

/** The payment cannot be accepted. Nothing was paid. */
export class PaymentInvalidError extends ServiceError {
  readonly reason: string
  constructor({ network }: Pick<X402Terms, 'network'>, reason: string, message: string) {
    super('payment_invalid', `The payment was not accepted: ${message}. Nothing was paid.`, {
      extra: { reason },
      headers: { 'payment-response': encodeHeader({ success: false, errorReason: reason, transaction: '', network }) },
    })
    this.reason = reason
  }
}
