import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { getAddress, recoverTypedDataAddress } from 'viem'
import { transferFields } from '../../test/support/circle-types.ts'
import { createCustodian, keys, terms } from '../../test/support/signing.ts'
import type { Payment } from '../ledger/payments.ts'
import { askCustodian, createSigner } from '../signer/signer.ts'
import { type Authorization, authorizationDigest, authorizationOf, paymentTerms, submittalOf } from './authorization.ts'

const accountId = '0190a1b2-c3d4-7000-8000-000000000001'
const payTerms = paymentTerms(terms, 0)
const payment: Payment = {
  partition: 0,
  accountId,
  address: keys.ofAccount(accountId).address,
  isPrepaid: false,
  number: 3n,
  epoch: 0,
  firstEntry: 7n,
  lastEntry: 9n,
  value: 1_234n,
  state: 'submitted',
  gatewayId: undefined,
  previousRoot: undefined,
  root: undefined,
  authorizedAt: new Date('2026-11-15T12:00:00.987Z'),
}
const resource = {
  url: 'https://penny.example/v1/chat/completions',
  description: 'Inference',
  mimeType: 'application/json',
}

test('the authorization of a payment is the same whenever and wherever it is made', () => {
  const authorization = authorizationOf(payment, payTerms)
  const again = { ...payment, authorizedAt: new Date(payment.authorizedAt), state: 'unknown' as const }
  assert.deepEqual(authorizationOf(again, paymentTerms(terms, 9)), authorization)
  assert.deepEqual(authorization.message, {
    from: payment.address,
    to: terms.seller,
    value: 1_234n,
    validAfter: Date.parse('2026-11-15T11:50:00Z') / 1000,
    validBefore: Date.parse('2026-11-23T12:00:00Z') / 1000,
    nonce: '0x5f2a3453e500d424d69be84b7cd8c0b9356b47e2b8cfacbe0000000000000003',
  })
})

test('a sum below zero is paid by the seller, under a nonce that no payment of the account has', () => {
  const [paid, back] = [payment, { ...payment, value: -1_234n }].map((one) => authorizationOf(one, payTerms))
  assert.equal(back!.operation, 'return')
  const { from, to, value, nonce } = back!.message
  assert.deepEqual([from, to, value], [terms.seller, payment.address, 1_234n])
  assert.notEqual(nonce, paid!.message.nonce)
})

test('a new epoch uses no nonce of the old one', () => {
  const [old, renewed] = [0, 1].map((epoch) => authorizationOf({ ...payment, epoch }, payTerms).message.nonce)
  assert.notEqual(old, renewed)
})

test('the payment has the shape of x402 version 2, as Circle’s gateway wants it', async (t) => {
  const signer = createSigner({
    ask: askCustodian(createCustodian(t, { now: () => payment.authorizedAt.getTime() })),
    onFault: assert.ifError,
  })
  const authorization = authorizationOf(payment, payTerms) as Authorization
  const [outcome] = await signer.signEach([authorization])
  assert.ok(outcome !== undefined && 'signature' in outcome)
  const submittal = submittalOf(authorization.message, outcome.signature, { terms: payTerms, resource })
  const requirements = submittal.paymentRequirements
  assert.deepEqual(requirements, {
    scheme: 'exact',
    network: 'eip155:5042002',
    asset: '0x3600000000000000000000000000000000000000',
    amount: '1234',
    payTo: getAddress(terms.seller),
    maxTimeoutSeconds: 604_900,
    extra: {
      name: 'GatewayWalletBatched',
      version: '1',
      verifyingContract: '0x0077777d7EBA4688BDeF3E311b846F25870A19B9',
    },
  })
  const body = JSON.parse(JSON.stringify(submittal.paymentPayload))
  assert.deepEqual(Object.keys(body), ['x402Version', 'resource', 'accepted', 'payload'])
  assert.deepEqual(body.accepted, requirements)
  assert.ok(Object.values(body.payload.authorization).every((value) => typeof value === 'string'))
  assert.equal(body.payload.authorization.to, requirements.payTo)
  assert.equal(body.payload.authorization.value, requirements.amount)
})

// What a stranger needs to check a payment: the payload and nothing else of ours.
test('the account can be recovered from a payload', async (t) => {
  const signer = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  await fc.assert(
    fc.asyncProperty(fc.uuid(), fc.bigInt(0n, 2n ** 63n - 1n), fc.bigInt(1n, 2_000_000n), async (id, number, value) => {
      const address = keys.ofAccount(id).address
      const authorization = authorizationOf(
        { ...payment, accountId: id, address, number, value, authorizedAt: new Date() },
        payTerms,
      ) as Authorization
      assert.equal(authorizationDigest(authorization).length, 32)
      const [outcome] = await signer.signEach([authorization])
      assert.ok(outcome !== undefined && 'signature' in outcome)
      const { paymentPayload } = submittalOf(authorization.message, outcome.signature, { terms: payTerms, resource })
      const { accepted, payload } = paymentPayload
      const { from, to, value: amount, validAfter, validBefore, nonce: bytes } = payload.authorization
      const recovered = await recoverTypedDataAddress({
        domain: { ...accepted.extra, chainId: Number(accepted.network.split(':')[1]) },
        types: { TransferWithAuthorization: transferFields },
        primaryType: 'TransferWithAuthorization',
        message: {
          from,
          to,
          value: BigInt(amount),
          validAfter: BigInt(validAfter),
          validBefore: BigInt(validBefore),
          nonce: bytes,
        },
        signature: payload.signature,
      })
      assert.equal(recovered, from)
      assert.equal(recovered.toLowerCase(), address)
    }),
    { numRuns: 60 },
  )
})
