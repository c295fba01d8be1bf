import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex, parseSignature } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import {
  type AnswerBody,
  account,
  ask,
  ended,
  type GatewayBench,
  onChain,
  paymentBody,
  seller,
  settle,
  transferOf,
  untilBalance,
} from '../test/support/gateway.ts'
import {
  assertPaidOnce,
  away,
  batchesOnChain,
  only,
  openLine,
  payer,
  untilAlarm,
} from '../test/support/gateway-line.ts'
import { publicClient, relayer, signCall } from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'

// Payments that reach the chain without being in the gateway's database: in another sender's transaction, or in its own before it lost
// its database.

test('a payment that a third party settles first counts as settled, once', async (t) => {
  const line = await openLine(t)
  const { bench, proxy, url } = line
  proxy.fault = away
  const body = await paymentBody(bench.wallet, payer)
  const id = await settle(url, body)
  await settleDirectly(bench, body)
  proxy.fault = undefined
  await assertPaidOnce(line, [id], 1_000n)
  const { batchId, transactionHash } = await transferOf(url, id)
  assert.equal(batchId, '1')
  assert.match(transactionHash, /^0x[0-9a-f]{64}$/)
  const foreign = await paymentBody(bench.wallet, payer)
  await settleDirectly(bench, foreign)
  await untilBalance(url, payer.address, '0.998')
  const answer = await ask(url, '/v1/x402/settle', foreign)
  assert.equal(answer.body.errorReason, 'nonce_already_used')
})

test('after the gateway loses its database, settled payments are found by their nonces', async (t) => {
  const other = account('another payee').address
  const line = await openLine(t, { payees: [seller.address, other] })
  const { bench } = line
  const bodies = await Promise.all([
    paymentBody(bench.wallet, payer, { value: 1_000n }),
    paymentBody(bench.wallet, payer, { value: 2_000n, to: other }),
    paymentBody(bench.wallet, payer, { value: 3_000n }),
  ])
  const settled: AnswerBody[] = []
  for (const body of bodies) settled.push(await ended(line.url, await settle(line.url, body)))
  await line.stop()
  await bench.database.query('drop schema gateway cascade')
  const { url } = await bench.start({ payees: [seller.address, other] })
  for (const [index, body] of bodies.entries()) {
    const found = await untilFound(url, body)
    const before = settled[index]!
    assert.deepEqual(
      { ...found, createdAt: before.createdAt, updatedAt: before.updatedAt },
      { ...before, id: found.id },
      'all but its id and its times',
    )
    assert.deepEqual(await transferOf(url, found.id), found)
    const again = await ask(url, '/v1/x402/settle', body)
    assert.equal(again.body.errorReason, 'nonce_already_used')
  }
  await untilBalance(url, payer.address, '0.994')
  // And later payments are settled on top of it.
  const next = await settle(url, await paymentBody(bench.wallet, payer))
  assert.equal((await ended(url, next)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 5_000n)
  assert.equal(await onChain(bench, other), 2_000n)
})

test('a node cannot invent foreign settlements: without the payer’s signature they are rejected', async (t) => {
  let skippedMs = 0
  const line = await openLine(t, { clock: () => Date.now() + skippedMs })
  const { bench, proxy, url } = line
  const [body, dearer] = await Promise.all([
    paymentBody(bench.wallet, payer, { value: 1_000n }),
    paymentBody(bench.wallet, payer, { value: 9_000n }),
  ])
  const forged = { ...dearer.paymentPayload.payload.authorization, nonce: nonceOf(body) }
  proxy.fault = only('eth_getTransactionByHash', async (_, forward) => {
    const { result } = await forward()
    return { result: { ...result, input: encodeBatch(1n, forged, dearer.paymentPayload.payload.signature) } }
  })
  await settleDirectly(bench, body)
  await untilAlarm(bench, 'foreign_batch_unread')
  assert.deepEqual(await transfersOf(url, body), [])
  proxy.fault = undefined
  skippedMs += 60_000
  const found = await untilFound(url, body)
  assert.deepEqual([found.status, found.amount, found.toAddress], ['completed', '1000', seller.address])
})

type PaymentBody = Awaited<ReturnType<typeof paymentBody>>
type Authorization = PaymentBody['paymentPayload']['payload']['authorization']

function nonceOf({ paymentPayload }: PaymentBody): Hex {
  return paymentPayload.payload.authorization.nonce
}

/** The query that the service sends. */
async function transfersOf(url: string, body: PaymentBody): Promise<AnswerBody[]> {
  const answer = await ask(url, `/v1/x402/transfers?from=${payer.address}&nonce=${nonceOf(body)}&pageSize=1`)
  return answer.body.transfers
}

async function untilFound(url: string, body: PaymentBody): Promise<AnswerBody> {
  const [found] = await untilFits(
    () => transfersOf(url, body),
    (transfers) => transfers.length === 1,
  )
  return found!
}

function encodeBatch(batchId: bigint, authorization: Authorization, signature: Hex): Hex {
  const { r, s, v } = parseSignature(signature)
  const row = {
    ...authorization,
    value: BigInt(authorization.value),
    validAfter: BigInt(authorization.validAfter),
    validBefore: BigInt(authorization.validBefore),
    v: Number(v),
    r,
    s,
  }
  const args = [batchId, `0x${'0'.repeat(64)}`, [row]] as const
  return encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'settleBatch', args })
}

/** Puts one authorization on chain with the relayer's key, bypassing the gateway. */
async function settleDirectly(bench: GatewayBench, body: PaymentBody): Promise<void> {
  const { authorization, signature } = body.paymentPayload.payload
  const data = encodeBatch((await batchesOnChain(bench)) + 1n, authorization, signature)
  const client = publicClient(bench.chain.url)
  const nonce = await client.getTransactionCount({ address: relayer.address })
  await client.sendRawTransaction({ serializedTransaction: await signCall(relayer, nonce, bench.wallet, data) })
}
