import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex, keccak256 } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import { format } from '../src/money/usdc.ts'
import {
  account,
  ask,
  balanceOf,
  burnIntent,
  deposit,
  ended,
  onChain,
  openBench,
  paymentBody,
  seller,
  sendCall,
  settle,
  transferOf,
  untilBalance,
} from '../test/support/gateway.ts'
import {
  assertNothingOpen,
  assertPaidOnce,
  away,
  batchesOnChain,
  only,
  openLine,
  payer,
  untilAlarm,
} from '../test/support/gateway-line.ts'
import { type RpcAnswer, type RpcCall, startRpcProxy } from '../test/support/rpc-proxy.ts'
import {
  gasAllowance,
  publicClient,
  signTransfer,
  startChain,
  usdc,
  usdcBalance,
} from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'
import type { AlarmCode } from './alarm.ts'

// A node between the gateway and the chain that is down, forgets, repeats itself or lies. Whatever it does, an accepted payment is
// settled once, to the unit; the worst it can cause is delay.

test('while the node is away payments are taken and wait; when it is back they settle', async (t) => {
  const line = await openLine(t)
  line.proxy.fault = away
  const ids = await line.pay(5)
  await untilAlarm(line.bench, 'chain_unreachable')
  assert.equal((await transferOf(line.url, ids[0]!)).status, 'received')
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 5_000n)
})

test('when the chain is unreachable for too long, new payments are refused', async (t) => {
  const line = await openLine(t, { chainAgeMsMax: 300 })
  line.proxy.fault = away
  const answer = await untilFits(
    async () => ask(line.url, '/v1/x402/settle', await paymentBody(line.bench.wallet, payer, { value: 1n })),
    ({ status }) => status !== 200,
  )
  assert.equal(answer.status, 503)
  assert.equal('success' in answer.body, false, 'a client must not take it for a refusal')
})

test('a receipt of a transaction that is in no block is rejected', async (t) => {
  const line = await openLine(t)
  line.proxy.fault = async ({ method, params }, forward) => {
    if (method === 'eth_sendRawTransaction') return { result: keccak256(params[0] as Hex) }
    if (method !== 'eth_getTransactionReceipt') return forward()
    const fields = { blockNumber: '0x2', status: '0x1', gasUsed: '0x1', effectiveGasPrice: '0x1' }
    return { result: { transactionHash: params[0], ...fields } }
  }
  const ids = await line.pay(1)
  await untilAlarm(line.bench, 'logs_missing')
  assert.notEqual((await transferOf(line.url, ids[0]!)).status, 'completed')
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 1_000n)
})

test('duplicate, unordered or missing logs change no balance', async (t) => {
  const line = await openLine(t, { recheckMs: 100, reconcileMs: 50 })
  let turn = 0
  line.proxy.fault = only('eth_getLogs', async (_, forward) => {
    const { result } = await forward()
    turn += 1
    if (turn % 3 === 0) return { result: [...result, ...result].reverse() }
    if (turn % 3 === 1) return { result: result.slice(1) }
    return { result: [] }
  })
  const ids = await line.pay(4)
  await assertPaidOnce(line, ids, 4_000n)
  await deposit(line.bench, account('another'), 77n)
  await untilBalance(line.url, account('another').address, '0.000077')
  // A node that hides a log twice in a row raises two alarms, the second one about a wrong database.
  const expected: readonly AlarmCode[] = ['logs_missing', 'balance_mismatch', 'chain_unreachable']
  assert.deepEqual(
    line.bench.alarms.filter(({ code }) => !expected.includes(code)),
    [],
  )
})

test('events are applied once when the node is behind or was reorganized', async (t) => {
  const line = await openLine(t)
  let turn = 0
  line.proxy.fault = only('eth_getBlockByNumber', async ({ params }, forward) => {
    const { result } = await forward()
    if (params[0] !== 'finalized') return { result }
    turn += 1
    const number = Number(result.number) + [5, -3, 0, 100_000, -1][turn % 5]!
    return { result: { ...result, number: `0x${Math.max(0, number).toString(16)}` } }
  })
  const ids = await line.pay(3)
  await untilFits(
    () => batchesOnChain(line.bench),
    (count) => count >= 1n,
  )
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 3_000n)
})

test('garbage from any method of the node only delays requests', async (t) => {
  const line = await openLine(t)
  const nonsense = [
    { text: '<html>busy</html>' },
    { result: null },
    { result: 'yes' },
    { result: {} },
    { result: ['0x'] },
    { result: '0x' },
    { error: { code: -32011, message: 'rate limited' } },
    'hang up',
  ] as const
  let turn = 0
  let random = 7
  // A quarter of the responses are corrupted, in a deterministic order.
  line.proxy.fault = async (_, forward) => {
    turn += 1
    random = (random * 1_103_515_245 + 12_345) % 2 ** 31
    const kind = Math.floor(random / 2 ** 8) % (nonsense.length * 4)
    return turn > 400 ? forward() : (nonsense[kind] ?? forward())
  }
  const ids = await line.pay(5)
  await untilAlarm(line.bench, 'chain_unreachable')
  await assertPaidOnce(line, ids, 5_000n)
})

// Every fault of this file concurrently, in an order derived from a seed. A failure prints the seed.
for (const seed of [1, 2]) {
  test(`under all faults together payments and withdrawals are exact to the unit (seed ${seed})`, async (t) => {
    const line = await openLine(t, { recheckMs: 200, reconcileMs: 100, replaceMs: 300 })
    const { bench, proxy, url } = line
    const random = randomOf(seed)
    let left = 250
    proxy.fault = (call, forward) => ((left -= 1) > 0 ? faulty(call, forward, random) : forward())
    const ids: string[] = []
    for (let round = 0; round < 6; round += 1) {
      ids.push(...(await line.pay(5, BigInt(100 + round))))
      await ask(url, '/v1/transfer?enableForwarder=true', [await burnIntent(bench.wallet, payer, { value: 7n })])
      await deposit(bench, account('depositor'), 11n)
    }
    for (const id of ids) assert.equal((await ended(url, id)).status, 'completed')
    proxy.fault = undefined
    const total = [0n, 1n, 2n, 3n, 4n, 5n].reduce((sum, round) => sum + 5n * (100n + round), 0n)
    await untilBalance(url, payer.address, format(1_000_000n - total - 42n))
    await untilBalance(url, account('depositor').address, format(66n))
    await untilFits(
      () => onChain(bench, payer.address),
      (balance) => balance === 1_000_000n - total - 42n,
    )
    assert.equal(await onChain(bench, seller.address), total)
    assert.equal(await usdcBalance(bench.chain.url, account('owner').address), 42n)
    await assertNothingOpen(bench)
  })
}

const faulty = async (call: RpcCall, forward: () => Promise<RpcAnswer>, random: () => number) => {
  const kind = random()
  if (kind < 0.1) return 'hang up' as const
  if (kind < 0.15) return { error: { code: -32_603, message: 'internal error' } }
  if (kind < 0.2) return forward().then(() => 'hang up' as const)
  if (kind > 0.4) return forward()
  if (call.method === 'eth_sendRawTransaction') return { result: keccak256(call.params[0] as Hex) }
  const answer = await forward()
  const { result } = answer
  if (call.method === 'eth_getLogs' && Array.isArray(result)) {
    return { result: kind < 0.3 ? [] : [...result, ...result].filter(() => random() < 0.8) }
  }
  if (call.method === 'eth_getTransactionReceipt') return { result: null }
  if (call.method === 'eth_getBlockByNumber' && result != null) {
    const number = Math.max(0, Number(result.number) + Math.floor(random() * 7) - 4)
    return { result: { ...result, number: `0x${number.toString(16)}` } }
  }
  return answer
}

function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor(state / 2 ** 8) / 2 ** 23
  }
}

test('a node of another chain is not listened to', async (t) => {
  const bench = await openBench(t)
  const proxy = await startRpcProxy(t, bench.chain.url)
  const honest = await bench.start({ chainRpcUrl: proxy.url })
  await honest.stop()
  proxy.fault = only('eth_chainId', async () => ({ result: '0x1' }))
  await deposit(bench, payer, 1_000n)
  const { url } = await bench.start({ chainRpcUrl: proxy.url })
  await untilAlarm(bench, 'wrong_chain')
  assert.equal(await balanceOf(url, payer.address), '0')
})

test('a deposit that a node inflates is worth what the contract says', async (t) => {
  const line = await openLine(t, { reconcileMs: 50 }, 0n)
  line.proxy.fault = only('eth_getLogs', async (_, forward) => {
    const { result } = await forward()
    return { result: result.map(inflated) }
  })
  await deposit(line.bench, payer, 1_000n)
  await untilAlarm(line.bench, 'balance_mismatch')
  await untilBalance(line.url, payer.address, '0.001')
  line.proxy.fault = undefined
  assert.equal(await balanceOf(line.url, payer.address), '0.001')
})

test('more logs than the node returns for one range do not stop the gateway', async (t) => {
  const line = await openLine(t, {}, 0n)
  line.proxy.fault = away
  await untilAlarm(line.bench, 'chain_unreachable')
  for (let count = 0; count < 5; count += 1) await deposit(line.bench, payer, 1_000n)
  line.proxy.fault = only('eth_getLogs', async ({ params }, forward) => {
    const answer = await forward()
    const { fromBlock, toBlock } = params[0] as { readonly fromBlock: string; readonly toBlock: string }
    const isTooMuch = fromBlock !== toBlock && answer.result.length > 2
    return isTooMuch ? { error: { code: -32_005, message: 'more than 2 results' } } : answer
  })
  await untilBalance(line.url, payer.address, '0.005')
})

test('balances are compared with the contract in one call, and one by one where a node refuses that call', async (t) => {
  const line = await openLine(t, { reconcileMs: 20 })
  for (const name of ['one', 'two', 'three']) await deposit(line.bench, account(name), 1_000n)
  const isGathered = ({ method, params }: RpcCall) =>
    method === 'eth_call' && (params[0] as { to?: string }).to === undefined
  const checked = () =>
    line.bench.database.query<{ depositor: string; checked: bigint }>(
      'select depositor, checked_height as checked from gateway.balances where changed_height > 0 order by depositor',
    )
  const head = BigInt((await publicClient(line.bench.chain.url).getBlockNumber()).toString())
  const compared = () => untilFits(checked, (rows) => rows.length === 4 && rows.every((row) => row.checked === head))
  await compared()
  line.proxy.calls.length = 0
  await line.bench.database.query('update gateway.balances set checked_height = 0')
  await compared()
  const plain = line.proxy.calls.filter((call) => call.method === 'eth_call' && !isGathered(call))
  assert.ok(line.proxy.calls.some(isGathered))
  assert.equal(
    plain.some(({ params }) => callsWallet(params, line.bench.wallet)),
    false,
    'of a balance alone',
  )
  line.proxy.fault = async (call, forward) =>
    isGathered(call) ? { error: { code: -32_602, message: 'to is missing' } } : forward()
  await line.bench.database.query('update gateway.balances set checked_height = 0')
  await compared()
  assert.deepEqual(line.bench.alarms, [])
})

function callsWallet(params: readonly unknown[], wallet: string): boolean {
  const { to, data } = params[0] as { readonly to?: string; readonly data?: string }
  // The number of the last batch is requested separately, and takes no arguments.
  return to?.toLowerCase() === wallet.toLowerCase() && (data?.length ?? 0) > 10
}

test('a payment that expires before it can settle has failed, and its value is free again', async (t) => {
  const line = await openLine(t)
  line.proxy.fault = only('eth_sendRawTransaction', async () => 'hang up')
  const [id] = await line.pay(1)
  await untilFits(
    () => transferOf(line.url, id!),
    ({ status }) => status === 'batched',
  )
  await line.bench.chain.admin.advanceTime(9 * 86_400)
  line.proxy.fault = undefined
  const failed = await ended(line.url, id!)
  assert.deepEqual([failed.status, failed.failureReason], ['failed', 'authorization_expired'])
  assert.equal(await balanceOf(line.url, payer.address), '1')
  assert.equal(await onChain(line.bench, seller.address), 0n)
  await untilAlarm(line.bench, 'transfer_skipped')
})

test('when a payer withdraws its balance outside the service, only its own payment fails', async (t) => {
  const line = await openLine(t)
  const { bench, proxy, url } = line
  const other = account('honest')
  await deposit(bench, other, 5_000n)
  await untilBalance(url, other.address, '0.005')
  proxy.fault = away
  const [lost] = await line.pay(1, 400_000n)
  const kept = await settle(url, await paymentBody(bench.wallet, other, { value: 5_000n }))
  const leave = (functionName: 'initiateWithdrawal' | 'withdraw', args: readonly unknown[]) =>
    sendCall(
      bench.chain,
      payer,
      bench.wallet,
      encodeFunctionData({ abi: settlementGatewayAbi, functionName, args } as never),
    )
  await leave('initiateWithdrawal', [usdc, 1_000_000n])
  await bench.chain.admin.mine(6)
  await leave('withdraw', [usdc])
  proxy.fault = undefined
  assert.equal((await ended(url, kept)).status, 'completed')
  const failed = await ended(url, lost!)
  assert.deepEqual([failed.status, failed.failureReason], ['failed', 'insufficient_balance'])
  assert.equal(await onChain(bench, seller.address), 5_000n)
})

test('USDC sent to the contract without a deposit is credited to no account', async (t) => {
  const { bench, url } = await openLine(t, { reconcileMs: 20 })
  await bench.chain.admin.giveUsdc(payer.address, 500n + gasAllowance)
  const client = publicClient(bench.chain.url)
  const nonce = await client.getTransactionCount({ address: payer.address })
  await client.sendRawTransaction({ serializedTransaction: await signTransfer(payer, nonce, bench.wallet, 500n) })
  await untilFits(
    () => bench.database.query<{ stray: bigint }>('select stray from gateway.chain'),
    ([chain]) => chain!.stray === 500n,
  )
  await deposit(bench, account('later'), 3n)
  await untilBalance(url, account('later').address, '0.000003')
  assert.equal(await balanceOf(url, payer.address), '1')
  const { body } = await ask(url, '/v1/deposits', { token: 'USDC', sources: [{ depositor: payer.address }] })
  assert.deepEqual(
    body.deposits.map(({ amount, status }: { amount: string; status: string }) => [amount, status]),
    [['1', 'finalized']],
  )
})

test('a database that belongs to another chain is refused at the start', async (t) => {
  const bench = await openBench(t)
  const first = await bench.start()
  await first.stop()
  const other = await startChain(t, { chainId: 1_234 })
  await assert.rejects(bench.start({ chainRpcUrl: other.url, chainId: 1_234 }), {
    message: /^The gateway's database belongs to .* and this start is for /,
  })
})

/** A deposit's log (the only one with four topics), with a larger number. */
function inflated(log: { readonly topics: readonly Hex[]; readonly data: Hex }) {
  return log.topics.length === 4 ? { ...log, data: `${log.data.slice(0, -6)}ffffff` } : log
}
