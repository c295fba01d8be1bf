import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex } from 'viem'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import {
  account,
  ask,
  balanceOf,
  burnIntent,
  deposit,
  ended,
  type GatewayBench,
  onChain,
  openBench,
  paymentBody,
  sendCall,
  settle,
  until,
  untilBalance,
} from '../../test/support/gateway.ts'
import { relayer, usdc, usdcBalance } from '../../test/support/sandbox-chain.ts'

const owner = account('owner').address
const payer = account('payer')

async function openFunded(bench: GatewayBench): Promise<string> {
  const { url } = await bench.start()
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  return url
}

async function withdrawalEnded(url: string, id: string) {
  const { body } = await until(
    () => ask(url, `/v1/transfer/${id}`),
    (answer) => ['finalized', 'failed', 'expired'].includes(answer.body.status),
  )
  return body
}

test('a signed order is paid out at once to whom it names, without a fee, and only once', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const intents = [await burnIntent(bench.wallet, payer, { value: 4_000n }), await burnIntent(bench.wallet, payer)]
  const { status, body } = await ask(url, '/v1/transfer?enableForwarder=true', intents)
  assert.equal(status, 201)
  const again = await ask(url, '/v1/transfer?enableForwarder=true', intents)
  assert.equal(again.body.transferId, body.transferId)
  const done = await withdrawalEnded(url, body.transferId)
  assert.equal(done.status, 'finalized')
  assert.match(done.transactionHash, /^0x[0-9a-f]{64}$/)
  assert.equal(done.fees.total, '0')
  assert.equal(await usdcBalance(bench.chain.url, owner), 5_000n)
  assert.equal(await onChain(bench, payer.address), 5_000n)
  assert.equal(await balanceOf(url, payer.address), '0.005')
  const mixed = [intents[0], await burnIntent(bench.wallet, payer)]
  assert.equal((await ask(url, '/v1/transfer?enableForwarder=true', mixed)).status, 400)
  assert.deepEqual(bench.alarms, [])
})

test('orders and payments share one balance: together they never take more than there is', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const orders = await Promise.all(Array.from({ length: 8 }, () => burnIntent(bench.wallet, payer, { value: 1_500n })))
  const payments = await Promise.all(
    Array.from({ length: 8 }, () => paymentBody(bench.wallet, payer, { value: 1_500n })),
  )
  const answers = await Promise.all([
    ...orders.map((order) => ask(url, '/v1/transfer?enableForwarder=true', [order])),
    ...payments.map((body) => ask(url, '/v1/x402/settle', body)),
  ])
  const taken = answers.filter(({ status }) => status < 300)
  assert.equal(taken.length, 6)
  for (const { body } of taken) {
    if (body.transferId === undefined) assert.equal((await ended(url, body.transaction)).status, 'completed')
    else assert.equal((await withdrawalEnded(url, body.transferId)).status, 'finalized')
  }
  assert.equal(await onChain(bench, payer.address), 1_000n)
  assert.equal(await balanceOf(url, payer.address), '0.001')
})

test('an order that is not this depositor’s, not for this gateway or too large is refused', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const post = async (body: unknown) => (await ask(url, '/v1/transfer?enableForwarder=true', body)).status
  const good = await burnIntent(bench.wallet, payer)
  const changes: readonly Record<string, unknown>[] = [
    { value: '1001' },
    { sourceDomain: 26 },
    { destinationContract: good.burnIntent.spec.sourceToken },
    { sourceToken: good.burnIntent.spec.sourceContract },
    { destinationRecipient: `0x${'0'.repeat(64)}` },
    { destinationRecipient: good.burnIntent.spec.sourceContract },
    { sourceSigner: good.burnIntent.spec.sourceContract },
    { hookData: '0x00' },
    { salt: '0x1' },
  ]
  for (const change of changes) {
    const { burnIntent: intent, signature } = good
    const body = [{ burnIntent: { ...intent, spec: { ...intent.spec, ...change } }, signature }]
    assert.equal(await post(body), 400, JSON.stringify(change))
  }
  assert.equal(await post([good, good]), 400)
  assert.equal(await post([await burnIntent(bench.wallet, payer, { value: 10_001n })]), 400)
  assert.equal(await post([await burnIntent(bench.wallet, payer, { maxBlockHeight: 1n })]), 400)
  assert.equal(await post([]), 400)
  assert.equal(await post(Array(17).fill(good)), 400)
  assert.equal((await ask(url, '/v1/transfer', [good])).status, 400)
  assert.equal(await balanceOf(url, payer.address), '0.01')
  const estimate = await ask(url, '/v1/estimate?enableForwarder=true', [good.burnIntent])
  assert.equal(estimate.body.fees.total, '0')
})

test('an order whose last block passes while it waits expires, and its money is free again', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  await pauseContract(bench, 'pause')
  const maxBlockHeight = BigInt(bench.chain.progress().blockNumber) + 2n
  const { body } = await ask(url, '/v1/transfer?enableForwarder=true', [
    await burnIntent(bench.wallet, payer, { value: 4_000n, maxBlockHeight }),
  ])
  assert.equal(await balanceOf(url, payer.address), '0.006')
  await bench.chain.admin.mine(5)
  assert.equal((await withdrawalEnded(url, body.transferId)).status, 'expired')
  assert.equal(await balanceOf(url, payer.address), '0.01')
})

test('while the contract is paused payments wait, and are settled afterwards', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  await pauseContract(bench, 'pause')
  const payment = await settle(url, await paymentBody(bench.wallet, payer))
  await until(
    async () => bench.alarms,
    (alarms) => alarms.some(({ code }) => code === 'settlement_refused'),
  )
  await pauseContract(bench, 'unpause')
  assert.equal((await ended(url, payment)).status, 'completed')
})

// F80: the holder of the key goes to the contract directly. What was promised before can still be settled.
test('a withdrawal begun at the contract stops new payments at once and cannot escape those taken before', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start({ batchMs: 1_500 })
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  const taken = await settle(url, await paymentBody(bench.wallet, payer, { value: 3_000n }))
  await callWallet(
    bench,
    encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'initiateWithdrawal', args: [usdc, 9_000n] }),
  )
  await untilBalance(url, payer.address, '0')
  const refused = await ask(url, '/v1/x402/settle', await paymentBody(bench.wallet, payer, { value: 1n }))
  assert.equal(refused.body.errorReason, 'insufficient_balance')
  assert.equal((await ended(url, taken)).status, 'completed')
  const { body } = await ask(url, '/v1/balances', { token: 'USDC', sources: [{ depositor: payer.address }] })
  assert.equal(body.balances[0].withdrawing, '0.007')
  await bench.chain.admin.mine(5)
  await callWallet(bench, encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'withdraw', args: [usdc] }))
  await until(
    () => ask(url, '/v1/balances', { token: 'USDC', sources: [{ depositor: payer.address }] }),
    (answer) => answer.body.balances[0].withdrawing === '0',
  )
})

async function callWallet({ chain, wallet }: GatewayBench, data: Hex): Promise<void> {
  await sendCall(chain, payer, wallet, data)
}

/** The relayer of the tests is owner and pauser too; its own transactions pass between those of the gateway. */
async function pauseContract({ chain, wallet }: GatewayBench, functionName: 'pause' | 'unpause'): Promise<void> {
  await sendCall(chain, relayer, wallet, encodeFunctionData({ abi: settlementGatewayAbi, functionName }))
}
