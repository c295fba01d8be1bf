import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex } from 'viem'
import { devUsdcAbi } from '../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
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
  untilBalance,
} from '../test/support/gateway.ts'
import { away, only, untilAlarm } from '../test/support/gateway-line.ts'
import { startRpcProxy } from '../test/support/rpc-proxy.ts'
import { relayer, usdc, usdcBalance } from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'
import type { GatewayOptions } from './server.ts'

const owner = account('owner').address
const payer = account('payer')
const withdraw = '/v1/transfer?enableForwarder=true'

async function openFunded(bench: GatewayBench, options: Partial<GatewayOptions> = {}): Promise<string> {
  const { url } = await bench.start(options)
  await deposit(bench, payer, 10_000n)
  await untilBalance(url, payer.address, '0.01')
  return url
}

async function withdrawalEnded(url: string, id: string) {
  const { body } = await untilFits(
    () => ask(url, `/v1/transfer/${id}`),
    (answer) => ['finalized', 'failed', 'expired'].includes(answer.body.status),
  )
  return body
}

test('a signed withdrawal is paid immediately to its recipient, without a fee, and only once', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const intents = [await burnIntent(bench.wallet, payer, { value: 4_000n }), await burnIntent(bench.wallet, payer)]
  const { status, body } = await ask(url, withdraw, intents)
  assert.equal(status, 201)
  const again = await ask(url, withdraw, intents)
  assert.equal(again.body.transferId, body.transferId)
  const done = await withdrawalEnded(url, body.transferId)
  assert.equal(done.status, 'finalized')
  assert.match(done.transactionHash, /^0x[0-9a-f]{64}$/)
  assert.equal(done.fees.total, '0')
  assert.equal(await usdcBalance(bench.chain.url, owner), 5_000n)
  assert.equal(await onChain(bench, payer.address), 5_000n)
  assert.equal(await balanceOf(url, payer.address), '0.005')
  const mixed = [intents[0], await burnIntent(bench.wallet, payer)]
  assert.equal((await ask(url, withdraw, mixed)).status, 400)
  assert.deepEqual(bench.alarms, [])
})

// A9: 120 withdrawals of 0.000001 USDC cost 0.00194 USDC of gas each, and other depositors waited behind them.
test('a depositor withdraws less than the minimum once in 12 hours', async (t) => {
  const bench = await openBench(t)
  let skippedMs = 0
  const { url } = await bench.start({ withdrawalMin: undefined, clock: () => Date.now() + skippedMs })
  await deposit(bench, payer, 500_000n)
  await untilBalance(url, payer.address, '0.5')
  const post = async (...values: readonly bigint[]) =>
    ask(url, withdraw, await Promise.all(values.map((value) => burnIntent(bench.wallet, payer, { value }))))
  assert.equal((await post(1n, 1n)).status, 400)
  const small = [await burnIntent(bench.wallet, payer, { value: 99_999n })]
  const first = await ask(url, withdraw, small)
  assert.equal(first.status, 201)
  const refused = await post(99_999n)
  assert.equal(refused.status, 400)
  assert.equal(
    refused.body.message,
    'value is 99999; the minimum is 100000, and a depositor may withdraw less once in 12 hours',
  )
  // Sending an intent again does not create a second one, and withdrawals of the minimum have no limit.
  assert.equal((await ask(url, withdraw, small)).body.transferId, first.body.transferId)
  assert.equal((await post(100_000n, 100_000n)).status, 201)
  assert.equal(await balanceOf(url, payer.address), '0.200001')
  skippedMs = 12 * 3_600_000 + 60_000
  assert.equal((await post(1n)).status, 201)
})

test('many intents of one depositor do not delay those of another', async (t) => {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  const url = await openFunded(bench, { chainRpcUrl: proxy.url })
  const other = account('other')
  await deposit(bench, other, 10_000n)
  await untilBalance(url, other.address, '0.01')
  // Nothing is sent until all intents are waiting.
  proxy.fault = away
  const request = async (from: typeof payer, value: bigint) => {
    const answer = await ask(url, withdraw, [await burnIntent(bench.wallet, from, { value })])
    assert.equal(answer.status, 201)
    return answer.body.transferId as string
  }
  for (let count = 0; count < 8; count += 1) await request(payer, 100n)
  const late = [await request(other, 200n), await request(other, 300n)]
  proxy.fault = undefined
  for (const id of late) assert.equal((await withdrawalEnded(url, id)).status, 'finalized')
  const sent = await untilFits(
    () =>
      bench.database.query<{ depositor: string }>(
        'select depositor from gateway.burn_intents where call is not null order by call',
      ),
    ({ length }) => length === 10,
  )
  const places = sent.flatMap(({ depositor }, place) => (depositor === other.address.toLowerCase() ? [place] : []))
  // In turns: behind one intent of the first depositor each, and not behind all eight.
  assert.deepEqual(places, [1, 3])
})

test('intents and payments share one balance: together they never take more than there is', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const intents = await Promise.all(Array.from({ length: 8 }, () => burnIntent(bench.wallet, payer, { value: 1_500n })))
  const payments = await Promise.all(
    Array.from({ length: 8 }, () => paymentBody(bench.wallet, payer, { value: 1_500n })),
  )
  const answers = await Promise.all([
    ...intents.map((intent) => ask(url, withdraw, [intent])),
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

test('an intent that is not this depositor’s, not for this gateway or too large is refused', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  const post = async (body: unknown) => (await ask(url, withdraw, body)).status
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

test('a withdrawal whose last block passes while it waits expires, and its money is available again', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  await pauseContract(bench, 'pause')
  const { body } = await ask(url, withdraw, [await burnIntent(bench.wallet, payer, { value: 4_000n })])
  assert.equal(await balanceOf(url, payer.address), '0.006')
  await expireAll(bench)
  assert.equal((await withdrawalEnded(url, body.transferId)).status, 'expired')
  assert.equal(await balanceOf(url, payer.address), '0.01')
})

// Expired intents are served first and cost their depositor nothing: a stream of them would delay all other withdrawals.
test('an intent that is about to expire is refused, and an expired one below the minimum counts as a small one', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench, { withdrawalMin: 5_000n })
  await pauseContract(bench, 'pause')
  const post = async (change: { value?: bigint; maxBlockHeight?: bigint } = {}) =>
    ask(url, withdraw, [await burnIntent(bench.wallet, payer, { value: 5_000n, ...change })])
  const height = BigInt(bench.chain.progress().blockNumber)
  const short = await post({ maxBlockHeight: height + 1_000n })
  assert.equal(short.status, 400)
  assert.match(short.body.message, /^maxBlockHeight is \d+ blocks ahead; the minimum is 5000$/)
  const { status, body } = await post({ value: 1n, maxBlockHeight: height + 6_000n })
  assert.equal(status, 201)
  await expireAll(bench)
  assert.equal((await withdrawalEnded(url, body.transferId)).status, 'expired')
  assert.equal((await post({ value: 1n })).status, 400)
})

/** As when the chain has gone on by thousands of blocks. */
async function expireAll({ database }: GatewayBench): Promise<void> {
  await database.query('update gateway.burn_intents set max_block_height = 1')
}

test('a withdrawal to an address that USDC blocks fails after ten minutes, and its money is released', async (t) => {
  const bench = await openBench(t)
  let skippedMs = 0
  const clock = () => Date.now() + skippedMs
  const first = await bench.start({ clock })
  await deposit(bench, payer, 10_000n)
  await untilBalance(first.url, payer.address, '0.01')
  await block(bench, 'blacklist')
  const intents = [await burnIntent(bench.wallet, payer, { value: 4_000n })]
  const { transferId } = (await ask(first.url, withdraw, intents)).body
  await untilAlarm(bench, 'withdrawal_refused')
  assert.equal(await balanceOf(first.url, payer.address), '0.006')
  await untilFits(
    async () => {
      skippedMs += 20_000
      return ask(first.url, `/v1/transfer/${transferId}`)
    },
    ({ body }) => body.status === 'failed',
  )
  assert.ok(skippedMs >= 600_000)
  const [refused] = await bench.database.query<{ refusals: number }>('select refusals from gateway.burn_intents')
  assert.ok(refused!.refusals >= 10)
  assert.equal(await balanceOf(first.url, payer.address), '0.01')

  await block(bench, 'unBlacklist')
  await first.stop()
  const { url } = await bench.start({ clock })
  assert.equal((await ask(url, withdraw, intents)).body.transferId, transferId)
  const later = await ask(url, withdraw, [await burnIntent(bench.wallet, payer)])
  assert.equal((await withdrawalEnded(url, later.body.transferId)).status, 'finalized')
  assert.equal((await withdrawalEnded(url, transferId)).status, 'failed')
  assert.equal(await usdcBalance(bench.chain.url, owner), 1_000n)
  assert.equal(await balanceOf(url, payer.address), '0.009')
})

test('a withdrawal to an address that was blocked for a while is paid', async (t) => {
  const bench = await openBench(t)
  let skippedMs = 0
  const url = await openFunded(bench, { clock: () => Date.now() + skippedMs })
  await block(bench, 'blacklist')
  const { body } = await ask(url, withdraw, [await burnIntent(bench.wallet, payer, { value: 4_000n })])
  await untilAlarm(bench, 'withdrawal_refused')
  // However long ago the first refusal was, a single one is not enough.
  skippedMs += 3_600_000
  await untilFits(
    () => bench.database.query<{ refusals: number }>('select refusals from gateway.burn_intents'),
    ([row]) => row!.refusals === 2,
  )
  await block(bench, 'unBlacklist')
  skippedMs += 60_000
  assert.equal((await withdrawalEnded(url, body.transferId)).status, 'finalized')
  assert.equal(await usdcBalance(bench.chain.url, owner), 4_000n)
})

// The node's estimates say that the contract would pay, and it does not: each attempt costs gas, so the attempts are limited.
test('an intent that reverts in block after block is given up, and its amount is released', async (t) => {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  let skippedMs = 0
  const url = await openFunded(bench, { chainRpcUrl: proxy.url, clock: () => Date.now() + skippedMs })
  await block(bench, 'blacklist')
  proxy.fault = only('eth_estimateGas', async () => ({ result: '0x493e0' }))
  const { body } = await ask(url, withdraw, [await burnIntent(bench.wallet, payer, { value: 4_000n })])
  await untilAlarm(bench, 'transaction_reverted')
  await untilFits(
    async () => {
      skippedMs += 60_000
      return ask(url, `/v1/transfer/${body.transferId}`)
    },
    (answer) => answer.body.status === 'failed',
  )
  const calls = await bench.database.query<{ state: string }>('select state from gateway.calls')
  assert.deepEqual(
    calls.map(({ state }) => state),
    Array(10).fill('reverted'),
  )
  assert.equal(await balanceOf(url, payer.address), '0.01')
  await untilAlarm(bench, 'withdrawal_refused')
})

test('an intent that another gateway gave up in the same moment is not sent', async (t) => {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  const url = await openFunded(bench, { chainRpcUrl: proxy.url })
  proxy.fault = async ({ method }, forward) => {
    if (method === 'eth_estimateGas') {
      await bench.database.query(`update gateway.burn_intents set state = 'failed', failure = 'given up'`)
      await bench.database.query('update gateway.balances set pending = 0')
    }
    return forward()
  }
  const { body } = await ask(url, withdraw, [await burnIntent(bench.wallet, payer, { value: 4_000n })])
  await untilAlarm(bench, 'worker_failed')
  assert.equal((await withdrawalEnded(url, body.transferId)).status, 'failed')
  assert.deepEqual(await bench.database.query('select from gateway.calls'), [])
  assert.equal(await usdcBalance(bench.chain.url, owner), 0n)
})

test('a withdrawal repeated after the gateway lost its database is found paid, even if no balance is left', async (t) => {
  const bench = await openBench(t)
  const { intents, paid, url } = await loseBooks(bench, 10_000n)
  const again = await ask(url, withdraw, intents)
  assert.equal(again.status, 201)
  const found = await withdrawalEnded(url, again.body.transferId)
  assert.deepEqual([found.status, found.transactionHash], ['finalized', paid.transactionHash])
  assert.equal(await balanceOf(url, payer.address), '0')
  assert.equal(await usdcBalance(bench.chain.url, owner), 10_000n)
})

test('a withdrawal that the contract paid and the database does not know is paid and reserves nothing', async (t) => {
  const bench = await openBench(t)
  const { intents, url } = await loseBooks(bench, 4_000n)
  // The database has the event, but not which withdrawal it paid.
  await bench.database.query('update gateway.events set spec_hash = null')
  const again = await ask(url, withdraw, intents)
  assert.equal((await withdrawalEnded(url, again.body.transferId)).status, 'finalized')
  assert.equal(await balanceOf(url, payer.address), '0.006')
  assert.equal(await usdcBalance(bench.chain.url, owner), 4_000n)
})

test('while the contract is paused payments wait, and are settled afterwards', async (t) => {
  const bench = await openBench(t)
  const url = await openFunded(bench)
  await pauseContract(bench, 'pause')
  const payment = await settle(url, await paymentBody(bench.wallet, payer))
  await untilAlarm(bench, 'settlement_refused')
  await pauseContract(bench, 'unpause')
  assert.equal((await ended(url, payment)).status, 'completed')
})

// F80: the key's holder calls the contract directly. Payments that were accepted before can still be settled.
test('a withdrawal started at the contract stops new payments immediately and cannot avoid earlier ones', async (t) => {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  const url = await openFunded(bench, { chainRpcUrl: proxy.url })
  // The payment must not be settled before the withdrawal starts: then 9,000 would no longer be there.
  proxy.fault = away
  const taken = await settle(url, await paymentBody(bench.wallet, payer, { value: 3_000n }))
  await callWallet(
    bench,
    encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'initiateWithdrawal', args: [usdc, 9_000n] }),
  )
  proxy.fault = undefined
  await untilBalance(url, payer.address, '0')
  const refused = await ask(url, '/v1/x402/settle', await paymentBody(bench.wallet, payer, { value: 1n }))
  assert.equal(refused.body.errorReason, 'insufficient_balance')
  assert.equal((await ended(url, taken)).status, 'completed')
  const { body } = await ask(url, '/v1/balances', { token: 'USDC', sources: [{ depositor: payer.address }] })
  assert.equal(body.balances[0].withdrawing, '0.007')
  await bench.chain.admin.mine(5)
  await callWallet(bench, encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'withdraw', args: [usdc] }))
  await untilFits(
    () => ask(url, '/v1/balances', { token: 'USDC', sources: [{ depositor: payer.address }] }),
    (answer) => answer.body.balances[0].withdrawing === '0',
  )
})

/** A gateway that pays out, loses its database, and has read the chain again. */
async function loseBooks(bench: GatewayBench, value: bigint) {
  const first = await bench.start()
  await deposit(bench, payer, 10_000n)
  await untilBalance(first.url, payer.address, '0.01')
  const intents = [await burnIntent(bench.wallet, payer, { value })]
  const { body } = await ask(first.url, withdraw, intents)
  const paid = await withdrawalEnded(first.url, body.transferId)
  await first.stop()
  await bench.database.query('drop schema gateway cascade')
  await deposit(bench, account('later'), 5n)
  const { url } = await bench.start()
  await untilBalance(url, account('later').address, '0.000005')
  return { intents, paid, url }
}

/** The tests' relayer is also the token's blocklister. */
async function block({ chain }: GatewayBench, functionName: 'blacklist' | 'unBlacklist'): Promise<void> {
  await sendCall(chain, relayer, usdc, encodeFunctionData({ abi: devUsdcAbi, functionName, args: [owner] }))
}

async function callWallet({ chain, wallet }: GatewayBench, data: Hex): Promise<void> {
  await sendCall(chain, payer, wallet, data)
}

/** The tests' relayer is also owner and pauser; its own transactions are interleaved with those of the gateway. */
async function pauseContract({ chain, wallet }: GatewayBench, functionName: 'pause' | 'unpause'): Promise<void> {
  await sendCall(chain, relayer, wallet, encodeFunctionData({ abi: settlementGatewayAbi, functionName }))
}
