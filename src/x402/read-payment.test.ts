import assert from 'node:assert/strict'
import { test } from 'node:test'
import { address, terms as signing } from '../../test/support/signing.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import { addressOfKey, signDigest } from '../signer/secp256k1.ts'
import { transferDigest } from '../signer/typed-data.ts'
import { encodeHeader } from './header.ts'
import { PaymentInvalidError, readPayment } from './read-payment.ts'
import { requirementsOf, x402Terms } from './terms.ts'

const terms = x402Terms(signing, 'https://penny.example')
const key = Buffer.from('a1'.repeat(32), 'hex')
const payer = addressOfKey(key)
const nowMs = Date.parse('2026-11-17T12:00:00Z')
const nowSeconds = nowMs / 1000
const stranger = address('0x00000000000000000000000000000000000000aa')

type Authorization = Record<'from' | 'to' | 'value' | 'validAfter' | 'validBefore' | 'nonce', string>

const honest: Authorization = {
  from: payer,
  to: signing.seller,
  value: '2500',
  validAfter: String(nowSeconds - 600),
  validBefore: String(nowSeconds + 8 * 24 * 60 * 60),
  nonce: `0x${'0f'.repeat(32)}`,
}

function sign(authorization: Authorization): Hex {
  const { from, to, value, validAfter, validBefore, nonce } = authorization
  const window = { validAfter: Number(validAfter), validBefore: Number(validBefore) }
  const message = { from: from as Address, to: to as Address, value: BigInt(value), ...window, nonce: nonce as Hex }
  return signDigest(transferDigest(terms.domain, 'TransferWithAuthorization', message), key)
}

type Changes = {
  /** Signed with these changes. */
  readonly authorization?: Partial<Authorization>
  readonly accepted?: object
  readonly signature?: string
  readonly extensions?: object
}

function headerOf({ authorization: changed = {}, accepted = {}, signature, extensions }: Changes = {}): string {
  const authorization = { ...honest, ...changed }
  return encodeHeader({
    x402Version: 2,
    accepted: { ...requirementsOf(terms, BigInt(honest.value)), ...accepted },
    payload: { authorization, signature: signature ?? sign(authorization) },
    ...(extensions && { extensions }),
  })
}

function reasonFor(changes: Changes): string | undefined {
  try {
    readPayment(headerOf(changes), terms, nowMs)
    return undefined
  } catch (error) {
    assert.ok(error instanceof PaymentInvalidError, String(error))
    return error.reason
  }
}

test('a payment is read as its wallet signed it, whatever the case of its letters', () => {
  const { message, signature, identifier } = readPayment(headerOf(), terms, nowMs)
  assert.deepEqual([message.from, message.to, message.value], [payer, signing.seller, 2_500n])
  assert.equal(signature, sign(honest))
  assert.equal(identifier, undefined)
  const shouted = `0x${payer.slice(2).toUpperCase()}`
  assert.equal(readPayment(headerOf({ authorization: { from: shouted }, signature }), terms, nowMs).message.from, payer)
})

test('a payment on other terms than ours is refused with the gateway’s reason', () => {
  const { extra } = requirementsOf(terms, 2_500n)
  for (const [changes, reason] of [
    [{ accepted: { scheme: 'upto' } }, 'unsupported_scheme'],
    [{ accepted: { network: 'eip155:1' } }, 'unsupported_network'],
    [{ accepted: { asset: stranger } }, 'unsupported_asset'],
    [{ accepted: { extra: { ...extra, verifyingContract: stranger } } }, 'unsupported_domain'],
    [{ accepted: { extra: { ...extra, version: '2' } } }, 'unsupported_domain'],
    [{ accepted: { payTo: stranger } }, 'address_mismatch'],
    [{ authorization: { to: stranger } }, 'address_mismatch'],
    [{ accepted: { amount: '2501' } }, 'amount_mismatch'],
    [{ authorization: { value: '2499' } }, 'amount_mismatch'],
    [{ authorization: { value: '1999' }, accepted: { amount: '1999' } }, 'amount_too_small'],
    [{ authorization: { from: signing.seller } }, 'self_transfer'],
    [{ authorization: { validAfter: String(nowSeconds) } }, 'authorization_not_yet_valid'],
    [{ authorization: { validBefore: String(nowSeconds) } }, 'authorization_expired'],
    [{ authorization: { validBefore: String(nowSeconds + 7 * 24 * 60 * 60 - 1) } }, 'authorization_validity_too_short'],
  ] as const)
    assert.equal(reasonFor(changes), reason, JSON.stringify(changes))
  // A payment whose outcome is unknown counts as owed until it expires.
  const month = nowSeconds + 30 * 24 * 60 * 60
  assert.equal(reasonFor({ authorization: { validBefore: String(month) } }), undefined)
  for (const validBefore of [String(month + 1), String(Number.MAX_SAFE_INTEGER)])
    assert.equal(reasonFor({ authorization: { validBefore } }), 'authorization_validity_too_long', validBefore)
  assert.throws(
    () => readPayment(headerOf({ authorization: { validBefore: String(nowSeconds + 400 * 86_400) } }), terms, nowMs),
    /it is valid for 400 more days; at most 30 are accepted/,
  )
  // What an account was charged is no payment of a wallet. Its address signed it, and the gateway has it.
  for (const [nonce, isOwn] of [
    [nonceOf('authorization', '0190a1b2-c3d4-7000-8000-000000000001', 0, 1n), true],
    [nonceOf('authorization', '0190a1b2-c3d4-7000-8000-000000000001', 7, 2n ** 31n), true],
    [`0x${'7'.padStart(64, '0')}`, false],
    [`0x${'0f'.repeat(24)}00000000ffffffff`, true],
    [`0x${'0f'.repeat(24)}0000000100000000`, false],
  ] as const)
    assert.equal(reasonFor({ authorization: { nonce } }), isOwn ? 'nonce_already_used' : undefined, nonce)
  // A 402 that asks for a sign-in alone names an amount of 0, and some clients sign that.
  assert.equal(reasonFor({ authorization: { value: '0' }, accepted: { amount: '0' } }), 'amount_too_small')
  assert.equal(reasonFor({ authorization: { value: '2000' }, accepted: { amount: '2000' } }), undefined)
  const largest = { value: '9999999999999999999' }
  assert.equal(reasonFor({ authorization: largest, accepted: { amount: largest.value } }), 'amount_mismatch')
})

test('a payment counts only with the signature of its payer over exactly what it says', () => {
  const signature = sign(honest)
  assert.equal(reasonFor({ authorization: { from: stranger } }), 'invalid_signature')
  for (const changed of [
    { nonce: `0x${'0e'.repeat(32)}` },
    { validAfter: String(nowSeconds - 601) },
    { validBefore: String(nowSeconds + 9 * 24 * 60 * 60) },
  ])
    assert.equal(reasonFor({ authorization: changed, signature }), 'invalid_signature', JSON.stringify(changed))
  const more = { authorization: { value: '2600' }, accepted: { amount: '2600' }, signature }
  assert.equal(reasonFor(more), 'invalid_signature')
  assert.equal(reasonFor({ signature: `0x${'00'.repeat(65)}` }), 'invalid_signature')
})

test('a header that is not a payment is refused as such, however it is broken', () => {
  const whole = headerOf()
  for (const header of [
    '',
    'not base64!',
    whole.slice(0, -8),
    `${whole}${whole}`,
    encodeHeader([]),
    encodeHeader({}),
    headerOf({ accepted: { amount: '-1' } }),
    headerOf({ accepted: { amount: '1e3' } }),
    headerOf({ signature: '0x' }),
    Buffer.from(`{"padding":"${'x'.repeat(8 * 1024)}"}`).toString('base64'),
  ])
    assert.throws(
      () => readPayment(header, terms, nowMs),
      ({ code, param }) => code === 'invalid_value' && param === 'payment-signature',
      header.slice(0, 40),
    )
})

test('the client’s own id of a payment is read when it has the form of one, and ignored otherwise', () => {
  const identifierFor = (extension: unknown) =>
    readPayment(headerOf({ extensions: { 'payment-identifier': extension } }), terms, nowMs).identifier
  assert.equal(identifierFor({ info: { id: 'pay_0123456789abcdef' } }), 'pay_0123456789abcdef')
  for (const id of ['short', 'x'.repeat(129), 'with a space in it', 7])
    assert.equal(identifierFor({ info: { id } }), undefined)
  assert.equal(identifierFor('pay_0123456789abcdef'), undefined)
})
