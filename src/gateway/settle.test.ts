import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  account,
  ask,
  deposit,
  ended,
  onChain,
  openBench,
  paymentBody,
  seller,
  settle,
  transferOf,
  untilBalance,
} from '../../test/support/gateway.ts'

test('a payment is taken at once, settled on chain, and findable by its id and by payer and nonce', async (t) => {
  const bench = await openBench(t)
  const gateway = await bench.start()
  const payer = account('payer')
  await deposit(bench, payer, 5_000_000n)
  await untilBalance(gateway.url, payer.address, '5')
  const body = await paymentBody(bench.wallet, payer, { value: 1_250_000n })
  const id = await settle(gateway.url, body)
  assert.match(id, /^[0-9a-f-]{36}$/)
  const taken = await transferOf(gateway.url, id)
  assert.equal(taken.amount, '1250000')
  const done = await ended(gateway.url, id)
  assert.equal(done.status, 'completed')
  assert.equal(done.batchId, '1')
  assert.match(String(done.transactionHash), /^0x[0-9a-f]{64}$/)
  assert.equal(await onChain(bench, payer.address), 3_750_000n)
  assert.equal(await onChain(bench, seller.address), 1_250_000n)
  await untilBalance(gateway.url, seller.address, '1.25')
  const { nonce } = body.paymentPayload.payload.authorization
  const { body: found } = await ask(gateway.url, `/v1/x402/transfers?from=${payer.address}&nonce=${nonce}`)
  assert.deepEqual(
    found.transfers.map((transfer: { id: string }) => transfer.id),
    [id],
  )
  const again = await ask(gateway.url, '/v1/x402/settle', body)
  assert.equal(again.body.errorReason, 'nonce_already_used')
  assert.deepEqual(bench.alarms, [])
})
