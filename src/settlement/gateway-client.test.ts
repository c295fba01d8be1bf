import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  afterFaults,
  beforeFaults,
  type CallFault,
  type CircleGateway,
  errorReasons,
  startCircleGateway,
} from '../../test/support/circle-gateway.ts'
import { keys, terms, transferRequest, withdrawalRequest } from '../../test/support/signing.ts'
import { until } from '../../test/support/until.ts'
import { signDigest } from '../signer/secp256k1.ts'
import { burnIntentDigest } from '../signer/typed-data.ts'
import { authorizationDigest, paymentTerms, submittalOf } from './authorization.ts'
import { createGatewayClient, type GatewayClient } from './gateway-client.ts'

const paying = paymentTerms(terms, 0)
const resource = { url: 'http://penny/', description: 'an answer', mimeType: 'application/json' }

async function openGatewayClient(
  t: TestContext,
  fault?: CallFault,
): Promise<{ gatewayClient: GatewayClient; gateway: CircleGateway }> {
  const gateway = await startCircleGateway(t, terms)
  const timeoutMs = fault === 'silence' ? 150 : 10_000
  const gatewayClient = createGatewayClient({ url: gateway.url, domain: terms.gatewayDomain, timeoutMs })
  atEnd(t, () => gatewayClient.close())
  return { gatewayClient, gateway }
}

/** A payment of an account that has the money for it. */
function payment(gateway: CircleGateway, value = 1_000n) {
  const account = randomUUID()
  const { address, privateKey } = keys.ofAccount(account)
  gateway.deposit(address, value)
  const request = transferRequest('authorization', { account, value })
  const signature = signDigest(authorizationDigest(request), privateKey)
  const submitted = submittalOf(request.message, signature, { terms: paying, resource })
  const settle = async (gatewayClient: GatewayClient) => (await gatewayClient.settle([submitted]))[0]!
  return { address, settle, message: request.message }
}

function withdrawal(gateway: CircleGateway, value = 1_000n) {
  const account = randomUUID()
  const { address, privateKey } = keys.ofAccount(account)
  const { intent } = withdrawalRequest(account, randomUUID(), value)
  gateway.deposit(address, value + intent.maxFee)
  return {
    address,
    submit: (gatewayClient: GatewayClient) =>
      gatewayClient.withdraw(intent, signDigest(burnIntentDigest(intent), privateKey)),
  }
}

test('a payment is taken, found by its nonce, and followed to its end', async (t) => {
  const { gatewayClient, gateway } = await openGatewayClient(t)
  const { settle, message, address } = payment(gateway)
  assert.equal(await gatewayClient.findTransfer(message.from, message.nonce), undefined)
  const answer = await settle(gatewayClient)
  assert.equal(answer.state, 'received')
  const id = answer.state === 'received' ? answer.id : ''
  const found = await gatewayClient.findTransfer(message.from, message.nonce)
  assert.deepEqual([found?.id, found?.from, found?.to, found?.amount], [id, address, terms.seller, 1_000n])
  gateway.batch()
  const settled = await gatewayClient.transfer(id)
  assert.deepEqual([settled?.state, settled?.transactionHash], ['completed', `0x${'ab'.repeat(32)}`])
  assert.equal(settled?.place, undefined, 'Circle does not say where in its batch a payment stands')
  assert.equal(await gatewayClient.balance(terms.seller), 1_000n)
  assert.equal(await gatewayClient.transfer(randomUUID()), undefined)
})

test('every reason for which Circle refuses a payment is a refusal, in its own word', async (t) => {
  const { gatewayClient, gateway } = await openGatewayClient(t)
  for (const reason of errorReasons) {
    gateway.refusals.push(reason)
    assert.deepEqual(await payment(gateway).settle(gatewayClient), { state: 'failed', reason })
  }
  assert.equal(gateway.transfers.size, 0)
})

test('the gateway refuses what it should: a stub that takes everything would prove nothing', async (t) => {
  const { gatewayClient, gateway } = await openGatewayClient(t)
  const { settle, message } = payment(gateway)
  gateway.deposit(message.from, -1n)
  assert.deepEqual(await settle(gatewayClient), { state: 'failed', reason: 'insufficient_balance' })
  gateway.deposit(message.from, 1n)
  assert.equal((await settle(gatewayClient)).state, 'received')
  assert.deepEqual(await settle(gatewayClient), { state: 'failed', reason: 'nonce_already_used' })
})

for (const fault of [...beforeFaults, ...afterFaults]) {
  test(`a payment that meets ${fault} has an unknown end, never a refusal`, async (t) => {
    const { gatewayClient, gateway } = await openGatewayClient(t, fault)
    const { settle } = payment(gateway)
    gateway.faults = () => fault
    assert.equal((await settle(gatewayClient)).state, 'unknown')
    const isTaken = (afterFaults as readonly string[]).includes(fault)
    // We may time out before the gateway has processed the request.
    if (isTaken) await until(() => gateway.transfers.size > 0)
    assert.equal(gateway.transfers.size, isTaken ? 1 : 0)
  })

  test(`a withdrawal that meets ${fault} has an unknown end, and asked again it is paid once`, async (t) => {
    const { gatewayClient, gateway } = await openGatewayClient(t, fault)
    const { submit } = withdrawal(gateway)
    gateway.faults = () => fault
    assert.equal((await submit(gatewayClient)).state, 'unknown')
    gateway.faults = () => undefined
    const patient = createGatewayClient({ url: gateway.url, domain: terms.gatewayDomain })
    atEnd(t, () => patient.close())
    assert.equal((await submit(patient)).state, 'received')
    assert.equal(gateway.withdrawals.size, 1)
  })

  test(`a query that fails with ${fault} has no result and no consequence`, async (t) => {
    const { gatewayClient, gateway } = await openGatewayClient(t, fault)
    const { message } = payment(gateway)
    gateway.faults = () => fault
    await assert.rejects(gatewayClient.findTransfer(message.from, message.nonce))
    await assert.rejects(gatewayClient.transfer(randomUUID()))
    await assert.rejects(gatewayClient.withdrawal(randomUUID()))
    await assert.rejects(gatewayClient.balance(message.from))
  })
}

test('a withdrawal that is refused says why, and one that failed too', async (t) => {
  const { gatewayClient, gateway } = await openGatewayClient(t)
  gateway.withdrawalRefusals.push('Burn intent is not supported')
  assert.deepEqual(await withdrawal(gateway).submit(gatewayClient), {
    state: 'failed',
    reason: 'Burn intent is not supported',
  })
  const answer = await withdrawal(gateway).submit(gatewayClient)
  gateway.failWithdrawals()
  const failed = await gatewayClient.withdrawal(answer.state === 'received' ? answer.id : '')
  assert.deepEqual(failed, { state: 'failed', transactionHash: undefined, reason: 'MINT_FAILED', fee: 0n })
})

test('the maximum cost of a withdrawal is reported beforehand, and its actual cost afterwards', async (t) => {
  const { gatewayClient, gateway } = await openGatewayClient(t)
  gateway.feeEstimate = 30_000n
  gateway.fee = 12_345n
  const { intent } = withdrawalRequest(randomUUID(), randomUUID())
  assert.equal(await gatewayClient.estimateFee(intent), 30_000n)
  const answer = await withdrawal(gateway).submit(gatewayClient)
  assert.equal((await gatewayClient.withdrawal(answer.state === 'received' ? answer.id : ''))?.fee, 12_345n)
})
