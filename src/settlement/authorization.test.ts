import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { getAddress, recoverTypedDataAddress } from 'viem'
import { transferFields } from '../../test/support/circle-types.ts'
import { createCustodian, keys, terms } from '../../test/support/signing.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { askCustodian, createSigner } from '../signer/signer.ts'
import {
  type AuthorizationDecision,
  authorizationDigest,
  authorizationOf,
  paymentPayload,
  paymentRequirements,
  paymentTerms,
} from './authorization.ts'

const accountId = '0190a1b2-c3d4-7000-8000-000000000001'
const payment = paymentTerms(terms, 0)
const decision: AuthorizationDecision = {
  accountId,
  address: keys.ofAccount(accountId).address,
  nonce: 3n,
  epoch: 0,
  authorized: fromAtomic(1_234n),
  createdAt: new Date('2026-11-15T12:00:00.987Z'),
}
const resource = {
  url: 'https://penny.example/v1/chat/completions',
  description: 'Inference',
  mimeType: 'application/json',
}

test('the authorization of a decision is the same whenever and wherever it is made', () => {
  const authorization = authorizationOf(decision, payment)
  assert.deepEqual(
    authorizationOf({ ...decision, createdAt: new Date(decision.createdAt) }, paymentTerms(terms, 9)),
    authorization,
  )
  assert.deepEqual(authorization?.message, {
    from: decision.address,
    to: terms.seller,
    value: 1_234n,
    validAfter: Date.parse('2026-11-15T11:50:00Z') / 1000,
    validBefore: Date.parse('2026-11-23T12:00:00Z') / 1000,
    nonce: '0x5f2a3453e500d424d69be84b7cd8c0b9356b47e2b8cfacbe0000000000000003',
  })
})

test('where credit covers the quote nothing is authorized', () => {
  assert.equal(authorizationOf({ ...decision, nonce: undefined, authorized: zero }, payment), undefined)
})

test('a new epoch uses no nonce of the old one', () => {
  const [old, renewed] = [0, 1].map((epoch) => authorizationOf({ ...decision, epoch }, payment)?.message.nonce)
  assert.notEqual(old, renewed)
})

test('the payment has the shape of x402 version 2, as Circle’s gateway wants it', async (t) => {
  const signer = createSigner({
    ask: askCustodian(createCustodian(t, { now: () => decision.createdAt.getTime() })),
    onFault: assert.ifError,
  })
  const authorization = authorizationOf(decision, payment)!
  const [outcome] = await signer.signAuthorizations([authorization])
  assert.ok(outcome !== undefined && 'signature' in outcome)
  const requirements = paymentRequirements(authorization, payment)
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
  const body = JSON.parse(JSON.stringify(paymentPayload(authorization, outcome.signature, payment, resource)))
  assert.deepEqual(Object.keys(body), ['x402Version', 'resource', 'accepted', 'payload'])
  assert.deepEqual(body.accepted, requirements)
  assert.ok(Object.values(body.payload.authorization).every((value) => typeof value === 'string'))
  assert.equal(body.payload.authorization.to, requirements.payTo)
  assert.equal(body.payload.authorization.value, requirements.amount)
})

// What a stranger needs to check a payment: the payload and nothing else of ours.
test('whoever reads a payload recovers the account from it', async (t) => {
  const signer = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  await fc.assert(
    fc.asyncProperty(fc.uuid(), fc.bigInt(0n, 2n ** 63n - 1n), fc.bigInt(1n, 2_000_000n), async (id, nonce, value) => {
      const address = keys.ofAccount(id).address
      const authorization = authorizationOf(
        { accountId: id, address, nonce, epoch: 0, authorized: fromAtomic(value), createdAt: new Date() },
        payment,
      )!
      assert.equal(authorizationDigest(authorization).length, 32)
      const [outcome] = await signer.signAuthorizations([authorization])
      assert.ok(outcome !== undefined && 'signature' in outcome)
      const { accepted, payload } = paymentPayload(authorization, outcome.signature, payment, resource)
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
