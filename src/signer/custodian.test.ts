import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { accountsOfRequests, offPolicyRequest } from '../../test/support/off-policy-requests.ts'
import {
  createCustodian,
  keys,
  limits,
  masterKey,
  ownerAddress,
  payoutAddress,
  terms,
  transferRequest,
  withdrawalRequest,
} from '../../test/support/signing.ts'
import type { Custodian } from './custodian.ts'
import { saltOf } from './nonce.ts'
import { recoverAddress } from './secp256k1.ts'
import { encodeRequest, type SigningRequest, type TransferRequest } from './signing-request.ts'
import { burnIntent, payOutMax, windowOf } from './signing-terms.ts'
import { burnIntentDigest, transferDigest } from './typed-data.ts'

const account = '0190a1b2-c3d4-7000-8000-000000000001'

test('permitted requests are signed with the key of the account that pays', (t) => {
  const custodian = createCustodian(t)
  const accountAddress = keys.ofAccount(account).address
  const signers = [
    ['authorization', 'TransferWithAuthorization', accountAddress],
    ['return', 'TransferWithAuthorization', terms.seller],
    ['deposit', 'ReceiveWithAuthorization', accountAddress],
  ] as const
  for (const [operation, type, signer] of signers) {
    const request = transferRequest(operation, { account, sequence: 7n, value: limits.authorizationMax })
    const digest = transferDigest(request.domain, type, request.message)
    assert.equal(recoverAddress(digest, signatureOf(custodian, request)), signer)
  }
  assert.deepEqual(ask(custodian, { operation: 'address', account }), { address: accountAddress })
})

test('a withdrawal goes only to the registered owner', (t) => {
  let nowMs = 1_000_000
  const custodian = createCustodian(t, { now: () => nowMs, ownerWaitMs: 1_000 })
  const request = withdrawalRequest(account, randomUUID())
  assert.equal(refusalOf(custodian, request), 'no_owner')
  ask(custodian, { operation: 'owner', account, owner: payoutAddress, immediate: true })
  assert.equal(refusalOf(custodian, request), 'wrong_intent')
  ask(custodian, { operation: 'owner', account, owner: ownerAddress, immediate: true })
  assert.equal(refusalOf(custodian, request), 'wrong_intent')
  nowMs += 1_000
  const signer = recoverAddress(burnIntentDigest(request.intent), signatureOf(custodian, request))
  assert.equal(signer, keys.ofAccount(account).address)
})

test('no owner can be registered at whose address the money would be lost', (t) => {
  const custodian = createCustodian(t)
  const { usdc, gatewayWallet, gatewayMinter, seller } = terms
  const lost = [usdc.address, gatewayWallet, gatewayMinter, seller, keys.ofAccount(account).address]
  for (const owner of [...lost, `0x${'0'.repeat(40)}` as typeof seller]) {
    assert.equal(refusalOf(custodian, { operation: 'owner', account, owner, immediate: true }), 'bad_owner')
  }
})

test('revenue is paid out only to the configured address', (t) => {
  const request = payoutTo(payoutAddress, 5n)
  const signature = signatureOf(createCustodian(t), request)
  assert.equal(recoverAddress(burnIntentDigest(request.intent), signature), terms.seller)
  assert.equal(refusalOf(createCustodian(t, { payoutAddress: undefined }), request), 'no_payout_address')
  assert.equal(refusalOf(createCustodian(t, { payoutAddress: ownerAddress }), request), 'wrong_intent')
})

test('the seller’s revenue may pay for the relayer’s gas', (t) => {
  const request = payoutTo(keys.ofRole('relayer').address, 5n)
  const signature = signatureOf(createCustodian(t, { payoutAddress: undefined }), request)
  assert.equal(recoverAddress(burnIntentDigest(request.intent), signature), terms.seller)
})

// The relayer's key is handed out to the service: what is paid there is in the attacker's hands.
test('of the revenue the relayer gets a refill at a time, and a few in an hour, whatever is paid out elsewhere', (t) => {
  const relayer = keys.ofRole('relayer').address
  const { refillMax } = limits
  assert.equal(refusalOf(createCustodian(t), payoutTo(relayer, refillMax + 1n)), 'value_out_of_range')
  const custodian = createCustodian(t, { refillHourMax: 2n * refillMax })
  signatureOf(custodian, payoutTo(payoutAddress, payOutMax))
  signatureOf(custodian, payoutTo(relayer, refillMax))
  signatureOf(custodian, payoutTo(relayer, refillMax))
  assert.equal(refusalOf(custodian, payoutTo(relayer, 1n)), 'hour_cap')
  signatureOf(custodian, payoutTo(payoutAddress, payOutMax))
})

test('a seller whose key is elsewhere is paid, and signs nothing here', (t) => {
  const seller = ownerAddress
  const custodian = createCustodian(t, { terms: { seller } })
  const authorization = transferRequest('authorization', { account })
  signatureOf(custodian, { ...authorization, message: { ...authorization.message, to: seller } })
  const giveBack = transferRequest('return', { account })
  const asked = { ...giveBack, message: { ...giveBack.message, from: seller } }
  assert.equal(refusalOf(custodian, asked), 'seller_not_held')
})

test('the value is at least one unit and at most the cap, to the unit', (t) => {
  const custodian = createCustodian(t)
  const outcomes = [0n, 1n, limits.authorizationMax, limits.authorizationMax + 1n].map(
    (value) => 'signature' in ask(custodian, transferRequest('authorization', { account, value })),
  )
  assert.deepEqual(outcomes, [false, true, true, false])
})

test('a window is made for now, is of the one length, and is not over', (t) => {
  const nowMs = 1_800_000_000_000
  const custodian = createCustodian(t, { now: () => nowMs })
  const second = 1000
  const dayMs = 24 * 3600 * second
  const isSigned = (message: Partial<TransferRequest['message']>) => {
    const request = transferRequest('authorization', { account })
    const answer = ask(custodian, { ...request, message: { ...request.message, ...message } })
    return 'signature' in answer
  }
  const decided = (offsetMs: number) => windowOf(new Date(nowMs + offsetMs))
  assert.equal(isSigned(decided(0)), true)
  assert.equal(isSigned(decided(600 * second)), true)
  assert.equal(isSigned(decided(601 * second)), false)
  assert.equal(isSigned(decided(-8 * dayMs + second)), true)
  assert.equal(isSigned(decided(-8 * dayMs)), false)
  const { validAfter, validBefore } = decided(0)
  assert.equal(isSigned({ validAfter, validBefore: validBefore + 1 }), false)
  assert.equal(isSigned({ validAfter: validAfter - 1, validBefore }), false)
  assert.equal(isSigned({ validAfter: 0, validBefore: validBefore }), false)
})

test('no account gets more signed in an hour than its limit', (t) => {
  const nowMs = 1_800_000_000_000
  let passedMs = 0
  const custodian = createCustodian(t, { now: () => nowMs + passedMs, accountHourMax: 2_500n, totalHourMax: 4_000n })
  const take = (who: string, sequence: bigint) => {
    const decidedAt = new Date(nowMs + passedMs)
    return ask(custodian, transferRequest('authorization', { account: who, sequence, decidedAt }))
  }
  const other = account.replace('1', '2')
  const outcomes = [take(account, 0n), take(account, 1n), take(account, 2n), take(other, 0n), take(other, 1n)]
  assert.deepEqual(
    outcomes.map((answer) => ('refusal' in answer ? answer.refusal.reason : 'signed')),
    ['signed', 'signed', 'hour_cap', 'signed', 'signed'],
  )
  assert.equal('refusal' in take(other, 2n), true)
  passedMs = 3_600_000
  assert.equal('signature' in take(account, 3n), true)
})

test('a value above the hourly limit is refused permanently, not as retryable', (t) => {
  const custodian = createCustodian(t, { accountHourMax: 2_500n, totalHourMax: 4_000n })
  ask(custodian, { operation: 'owner', account, owner: ownerAddress, immediate: true })
  const take = (value: bigint) => ask(custodian, withdrawalRequest(account, randomUUID(), value))
  const outcomes = [take(2_501n), take(2_500n), take(1n), take(2_501n)]
  assert.deepEqual(
    outcomes.map((answer) => ('refusal' in answer ? answer.refusal.reason : 'signed')),
    ['value_out_of_range', 'signed', 'hour_cap', 'value_out_of_range'],
  )
  const free = createCustodian(t)
  ask(free, { operation: 'owner', account, owner: ownerAddress, immediate: true })
  signatureOf(free, withdrawalRequest(account, randomUUID(), payOutMax))
  const above = withdrawalRequest(account, randomUUID(), payOutMax + 1n)
  assert.equal(refusalOf(free, above), 'value_out_of_range')
})

// The policy protects the keys from an attacker that controls the service.
test('of thousands of requests against the policy none is signed, and honest ones still are', (t) => {
  const custodian = createCustodian(t)
  for (const id of accountsOfRequests)
    ask(custodian, { operation: 'owner', account: id, owner: ownerAddress, immediate: true })
  fc.assert(
    fc.property(offPolicyRequest, (text) => {
      const answer = JSON.stringify(custodian.answer(JSON.parse(text)))
      assert.doesNotMatch(answer, /signature|[0-9a-f]{128}/i)
      assert.ok(!answer.includes(masterKey.toString('hex')))
    }),
    { numRuns: 3_000 },
  )
  signatureOf(custodian, transferRequest('authorization', { account }))
  const { refused } = custodian.takeCounts()
  const reasons = Object.keys(refused)
  for (const reason of ['malformed', 'unknown_operation', 'wrong_domain', 'wrong_from', 'wrong_to', 'wrong_nonce']) {
    assert.ok(reasons.includes(reason), `no request came as far as ${reason}`)
  }
  for (const reason of ['wrong_window', 'wrong_intent', 'value_out_of_range', 'fee_above_cap']) {
    assert.ok(reasons.includes(reason), `no request came as far as ${reason}`)
  }
  assert.equal(refused.failed, undefined)
})

function payoutTo(recipient: typeof payoutAddress, value: bigint) {
  const payout = randomUUID()
  const paying = { depositor: terms.seller, recipient, value, maxFee: 0n, salt: saltOf('payout', payout) }
  return { operation: 'payout', payout, intent: burnIntent(terms, paying) } as const
}

function ask(custodian: Custodian, request: SigningRequest) {
  return custodian.answer(JSON.parse(encodeRequest(request)))
}

function signatureOf(custodian: Custodian, request: SigningRequest): string {
  const answer = ask(custodian, request)
  assert.ok('signature' in answer, JSON.stringify(answer))
  return answer.signature
}

function refusalOf(custodian: Custodian, request: SigningRequest): string {
  const answer = ask(custodian, request)
  assert.ok('refusal' in answer, JSON.stringify(answer))
  return answer.refusal.reason
}
