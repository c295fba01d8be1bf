import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import {
  createCustodian,
  keys,
  limits,
  ownerAddress,
  payoutAddress,
  terms,
  transferRequest,
  withdrawalRequest,
} from '../../test/support/signing.ts'
import { type Hex, toHex, zeroHash } from '../receipts/hex.ts'
import { type Snapshot, snapshotDigest } from '../receipts/liability-proof.ts'
import { keccak256 } from './keccak.ts'
import { recoverAddress } from './secp256k1.ts'
import { type AskSigner, askCustodian, createSigner } from './signer.ts'
import { SignerFaultError, SignerUnavailableError } from './signer-line.ts'
import { type SigningAnswer, SigningRefusedError } from './signing-request.ts'

const account = '0190a1b2-c3d4-7000-8000-000000000001'
const other = account.replace('1', '2')

test('every operation is signed, and a refused one does not affect the others of its batch', async (t) => {
  const signer = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  assert.equal(await signer.addressOf(account), keys.ofAccount(account).address)
  const batch = [1n, limits.authorizationMax + 1n, 2n].map((value, index) =>
    transferRequest('authorization', { account, value, sequence: BigInt(index) }),
  )
  const outcomes = await signer.signEach(batch)
  assert.deepEqual(
    outcomes.map((outcome) => ('refusal' in outcome ? outcome.refusal.reason : 'signed')),
    ['signed', 'value_out_of_range', 'signed'],
  )
  assert.match(await signer.sign(transferRequest('return', { account })), /^0x[0-9a-f]{130}$/)
  assert.match(await signer.sign(transferRequest('deposit', { account })), /^0x[0-9a-f]{130}$/)
  assert.equal((await signer.registerOwner(account, ownerAddress, true)).address, ownerAddress)
  assert.match(await signer.sign(withdrawalRequest(account, randomUUID())), /^0x[0-9a-f]{130}$/)
  await assert.rejects(signer.sign(withdrawalRequest(other, randomUUID())), SigningRefusedError)
})

test('a snapshot of the liabilities is signed for its own minute, and never a second tree of one minute', async (t) => {
  const custodian = createCustodian(t)
  const signer = createSigner({ ask: askCustodian(custodian), onFault: assert.ifError })
  const refuses = (changes: Partial<Snapshot>, reason = 'wrong_snapshot') =>
    assert.rejects(
      signer.signLiabilities({ ...snapshot, ...changes }),
      { reason },
      JSON.stringify(Object.keys(changes)),
    )
  const time = BigInt(Date.now())
  const number = time / 60_000n
  const root: Hex = `0x${'11'.repeat(32)}`
  const snapshot = { number, time, root, sum: 10n, leaves: 1n, previous: zeroHash, block: 1n, onChain: 10n }
  await refuses({ number: number - 1n })
  await refuses({ time: time - 700_000n, number: (time - 700_000n) / 60_000n })
  await refuses({ time: time + 700_000n, number: (time + 700_000n) / 60_000n })
  await refuses({ sum: 2n ** 96n + 1n }, 'value_out_of_range')
  await refuses({ sum: -1n }, 'malformed')
  await refuses({ root: '0x11' }, 'malformed')
  const signature = await signer.signLiabilities(snapshot)
  assert.equal(await signer.signLiabilities(snapshot), signature)
  await refuses({ root: `0x${'22'.repeat(32)}` })
  await refuses({ sum: 9n })
  await refuses({ time: time - 60_000n, number: number - 1n })
  assert.match(await signer.signLiabilities({ ...snapshot, time: time + 60_000n, number: number + 1n }), /^0x/)
  // The key is that of receipts. Under their domain, the same structure has another digest.
  const digest = snapshotDigest(snapshot, { ...terms, chainId: BigInt(terms.chainId) }, keccak256)
  assert.equal(recoverAddress(digest, signature), keys.ofRole('issuer').address)
  assert.notEqual(await signer.signReceipt(toHex(digest)), signature)
})

// A signer with wrong keys or broken memory must not be able to make us submit its answers.
test('an implausible answer is rejected, and so is every later one', async (t) => {
  const honest = askCustodian(createCustodian(t))
  const request = transferRequest('authorization', { account, sequence: 5n })
  const { signature } = (await honest(request)) as { signature: string }
  const wrongAnswers: readonly unknown[] = [
    await honest(transferRequest('authorization', { account: other, sequence: 5n })),
    await honest(transferRequest('authorization', { account, sequence: 6n })),
    { signature: `${signature.slice(0, 40)}${signature[40] === '0' ? '1' : '0'}${signature.slice(41)}` },
    { signature: `${signature.slice(0, -2)}${signature.endsWith('1b') ? '1c' : '1b'}` },
    { signature: signature.slice(0, -2) },
    { signature: 7 },
    { address: terms.seller },
    { refusal: null },
    { refusal: { reason: 'mood', message: '' } },
    {},
    null,
    'signature',
  ]
  for (const answer of wrongAnswers) {
    const faults: Error[] = []
    const scripted = [answer, { signature }] as SigningAnswer[]
    const signer = createSigner({ ask: async () => scripted.shift()!, onFault: (error) => faults.push(error) })
    await assert.rejects(signer.signEach([request]), SignerFaultError, JSON.stringify(answer))
    await assert.rejects(signer.signEach([request]), SignerFaultError)
    await assert.rejects(signer.addressOf(account), SignerFaultError)
    assert.equal(faults.length, 1)
  }
})

test('requests sent before a fault was found are not trusted after it', async (t) => {
  const honest = askCustodian(createCustodian(t))
  const liar: AskSigner = (request) =>
    honest('account' in request && request.account === other ? transferRequest('authorization', { account }) : request)
  const signer = createSigner({ ask: liar, onFault() {} })
  const outcomes = await Promise.allSettled(
    [other, account].map((id) => signer.signEach([transferRequest('authorization', { account: id })])),
  )
  assert.deepEqual(
    outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason instanceof SignerFaultError),
    [true, true],
  )
})

test('a withdrawal signed by another key is rejected', async (t) => {
  const custodian = createCustodian(t)
  const honest = askCustodian(custodian)
  for (const id of [account, other])
    await honest({ operation: 'owner', account: id, owner: ownerAddress, immediate: true })
  const wrong = await honest(withdrawalRequest(other, randomUUID()))
  const signer = createSigner({ ask: async () => wrong, onFault() {} })
  await assert.rejects(signer.sign(withdrawalRequest(account, randomUUID())), SignerFaultError)
})

test('an owner or an address that was not requested is rejected', async () => {
  const answers: readonly SigningAnswer[] = [
    { owner: { address: payoutAddress, usableFromMs: 0 } },
    { owner: { address: ownerAddress, usableFromMs: Number.NaN } },
  ]
  for (const answer of answers) {
    const signer = createSigner({ ask: async () => answer, onFault() {} })
    await assert.rejects(signer.registerOwner(account, ownerAddress, true), SignerFaultError)
  }
  const signer = createSigner({ ask: async () => ({ address: '0x12' as typeof ownerAddress }), onFault() {} })
  await assert.rejects(signer.addressOf(account), SignerFaultError)
})

test('where only one signature in n is checked, a signer that lies is found out within n', async (t) => {
  const honest = askCustodian(createCustodian(t))
  let asked = 0
  const liar: AskSigner = (request) => {
    asked += 1
    return honest(asked <= 5 ? request : transferRequest('authorization', { account: other }))
  }
  const signer = createSigner({ ask: liar, checkEvery: 4, onFault() {} })
  const sign = () => signer.signEach([transferRequest('authorization', { account })])
  for (let index = 0; index < 5; index += 1) await sign()
  await assert.rejects(async () => {
    for (let index = 0; index < 4; index += 1) await sign()
  }, SignerFaultError)
})

test('signatures of anything but payments are all checked, also where only one payment in n is', async (t) => {
  const honest = askCustodian(createCustodian(t))
  const liar: AskSigner = (request) =>
    honest(request.operation === 'deposit' ? transferRequest('deposit', { account: other }) : request)
  const signer = createSigner({ ask: liar, checkEvery: 100, onFault() {} })
  await signer.signEach([transferRequest('authorization', { account })])
  await assert.rejects(signer.sign(transferRequest('deposit', { account })), SignerFaultError)
})

test('an unreachable signer is not a fault: requests can be retried', async (t) => {
  const honest = askCustodian(createCustodian(t))
  let isAway = true
  const ask: AskSigner = async (request) => {
    if (isAway) throw new SignerUnavailableError('is away')
    return honest(request)
  }
  const signer = createSigner({ ask, onFault: assert.ifError })
  const request = transferRequest('authorization', { account })
  await assert.rejects(signer.signEach([request]), SignerUnavailableError)
  isAway = false
  const [outcome] = await signer.signEach([request])
  assert.ok(outcome !== undefined && 'signature' in outcome)
})
