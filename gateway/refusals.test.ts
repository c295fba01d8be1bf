import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import type { Address, Hex } from 'viem'
import { paymentBody, seller } from '../test/support/gateway.ts'
import { account, chainId, usdc } from '../test/support/sandbox-chain.ts'
import { type PaymentReason, PaymentRefusedError, readPayment, validitySecondsMin } from './payment.ts'
import { gatewayTerms } from './terms.ts'

// Every stateless reason of Circle's, and its exact limit, to the second. The other two are in settle.test.ts.

const wallet: Address = '0x00000000000000000000000000000000000000aa'
const terms = gatewayTerms(chainId, usdc, wallet)
const payer = account('payer')
const nowMs = 1_800_000_000_500
const now = 1_800_000_000n
const window = { validAfter: now - 600n, validBefore: now + validitySecondsMin + 86_400n }

type Body = Awaited<ReturnType<typeof paymentBody>>
/** The parts of a body that tests change. */
type Change = (body: MutableBody) => void
// biome-ignore lint/suspicious/noExplicitAny: a body of any shape is what these tests are about
type MutableBody = any

let good: Body
before(async () => {
  good = await paymentBody(wallet, payer, window)
})

test('a good payment passes, whatever the case of its addresses', () => {
  const body = changed((copy) => {
    copy.paymentRequirements.payTo = copy.paymentRequirements.payTo.toLowerCase()
    copy.paymentPayload.payload.authorization.from = copy.paymentPayload.payload.authorization.from.toLowerCase()
    delete copy.paymentPayload.accepted
  })
  const payment = readPayment(body, terms, nowMs)
  assert.equal(payment.payer, payer.address.toLowerCase())
  assert.equal(payment.payee, seller.address.toLowerCase())
})

describe('what is not for this gateway is refused with Circle’s reason', () => {
  const cases: readonly (readonly [PaymentReason, string, Change])[] = [
    ['unsupported_scheme', 'another scheme', (body) => (body.paymentRequirements.scheme = 'upto')],
    ['unsupported_network', 'another chain', (body) => (body.paymentRequirements.network = 'eip155:1')],
    ['unsupported_asset', 'another token', (body) => (body.paymentRequirements.asset = wallet)],
    ['unsupported_domain', 'another domain', (body) => (body.paymentRequirements.extra.name = 'USDC')],
    ['unsupported_domain', 'another version', (body) => (body.paymentRequirements.extra.version = '2')],
    ['wallet_not_found', 'another wallet', (body) => (body.paymentRequirements.extra.verifyingContract = usdc)],
    ['address_mismatch', 'another seller', (body) => (body.paymentRequirements.payTo = usdc)],
    ['amount_mismatch', 'another amount', (body) => (body.paymentRequirements.amount = '1001')],
    ['address_mismatch', 'accepted another seller', (body) => (body.paymentPayload.accepted.payTo = usdc)],
    ['amount_mismatch', 'accepted another amount', (body) => (body.paymentPayload.accepted.amount = '1')],
    ['amount_mismatch', 'signed another amount', (body) => (authorizationOf(body).value = '999')],
    ['address_mismatch', 'signed another seller', (body) => (authorizationOf(body).to = usdc)],
    ['invalid_signature', 'signed by another', (body) => (authorizationOf(body).from = account('other').address)],
    ['invalid_signature', 'another nonce', (body) => (authorizationOf(body).nonce = `0x${'1'.repeat(64)}`)],
    ['invalid_signature', 'a short signature', (body) => (body.paymentPayload.payload.signature = '0x1234')],
    ['invalid_signature', 'zeros', (body) => (body.paymentPayload.payload.signature = `0x${'0'.repeat(128)}1b`)],
    [
      'invalid_signature',
      'the compact form',
      (body) => (body.paymentPayload.payload.signature = signature(body).slice(0, 130)),
    ],
    ['invalid_signature', 'the twin', (body) => (body.paymentPayload.payload.signature = twinOf(signature(body)))],
  ]
  for (const [reason, title, change] of cases) {
    test(`${reason}: ${title}`, () => assert.equal(reasonOf(changed(change)), reason))
  }
})

test('a malformed payload is refused as invalid_payload', () => {
  const changes: readonly Change[] = [
    (body) => delete body.paymentPayload,
    (body) => delete body.paymentRequirements,
    (body) => (body.paymentPayload = []),
    (body) => (body.paymentPayload.x402Version = 1),
    (body) => delete body.paymentPayload.payload,
    (body) => delete body.paymentPayload.payload.signature,
    (body) => (body.paymentPayload.payload.signature = 5),
    (body) => (body.paymentPayload.payload.signature = '0xzz'),
    (body) => (authorizationOf(body).nonce = '0x12'),
    (body) => (authorizationOf(body).from = 'payer'),
    (body) => (authorizationOf(body).value = 1000),
    (body) => (authorizationOf(body).value = '-1'),
    (body) => (authorizationOf(body).value = '1e3'),
    (body) => (authorizationOf(body).value = '9'.repeat(78)),
    (body) => (body.paymentRequirements.amount = '0x3e8'),
    (body) => delete body.paymentRequirements.extra,
    (body) => (body.paymentPayload.extensions = { receipt: { hash: '0x12' } }),
    (body) => (body.paymentPayload.extensions = { receipt: 'hash' }),
  ]
  for (const change of changes) assert.equal(reasonOf(changed(change)), 'invalid_payload', change.toString())
  for (const body of [null, 5, 'text', [], {}]) assert.equal(reasonOf(body), 'invalid_payload')
})

test('payments that the contract would skip are refused: of 0, to the payer, to the zero address, to the gateway', async () => {
  const refused = async (change: Parameters<typeof paymentBody>[2]) => {
    return reasonOf(await paymentBody(wallet, payer, { ...window, ...change }))
  }
  assert.equal(await refused({ value: 0n }), 'invalid_payload')
  assert.equal(await refused({ to: payer.address }), 'self_transfer')
  assert.equal(await refused({ to: `0x${'0'.repeat(40)}` }), 'invalid_payload')
  assert.equal(await refused({ to: wallet }), 'invalid_payload')
})

test('the window must be open, and stay open for seven days, to the second', async () => {
  const reason = async (validAfter: bigint, validBefore: bigint) => {
    return reasonOf(await paymentBody(wallet, payer, { validAfter, validBefore }))
  }
  assert.equal(await reason(now, window.validBefore), 'authorization_not_yet_valid')
  assert.equal(await reason(now - 1n, window.validBefore), undefined)
  assert.equal(await reason(window.validAfter, now), 'authorization_expired')
  assert.equal(await reason(window.validAfter, now + 1n), 'authorization_validity_too_short')
  assert.equal(await reason(window.validAfter, now + validitySecondsMin - 1n), 'authorization_validity_too_short')
  assert.equal(await reason(window.validAfter, now + validitySecondsMin), undefined)
  assert.equal(await reason(0n, 2n ** 256n - 1n), undefined)
})

test('a signature for another chain or another gateway is invalid', async () => {
  assert.equal(reasonOf(await paymentBody(wallet, payer, { ...window, chainId: 1 })), 'invalid_signature')
  assert.equal(reasonOf(await paymentBody(wallet, payer, { ...window, signedWallet: usdc })), 'invalid_signature')
})

function changed(change: Change): unknown {
  const body = structuredClone(good)
  change(body)
  return body
}

function reasonOf(body: unknown): PaymentReason | undefined {
  try {
    readPayment(body, terms, nowMs)
    return undefined
  } catch (error) {
    assert.ok(error instanceof PaymentRefusedError)
    return error.reason
  }
}

function authorizationOf(body: MutableBody): MutableBody {
  return body.paymentPayload.payload.authorization
}

function signature(body: MutableBody): Hex {
  return body.paymentPayload.payload.signature
}

/** The same signature with high s: valid for the curve, and refused by the contract. */
function twinOf(signed: Hex): Hex {
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
  const s = (order - BigInt(`0x${signed.slice(66, 130)}`)).toString(16).padStart(64, '0')
  return `0x${signed.slice(2, 66)}${s}${signed.endsWith('1b') ? '1c' : '1b'}`
}
