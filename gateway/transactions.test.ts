import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex, keccak256, parseTransaction } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import {
  account,
  ask,
  deposit,
  ended,
  type GatewayBench,
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
  batchesOnChain,
  only,
  openLine,
  payer,
  untilAlarm,
} from '../test/support/gateway-line.ts'
import type { RpcFault } from '../test/support/rpc-proxy.ts'
import { publicClient, relayer, signTransfer } from '../test/support/sandbox-chain.ts'
import { untilFits } from '../test/support/until.ts'

// The gateway's own transactions: dropped, replaced, reverted, overtaken, without gas, sent by one relayer and then by another. Whatever
// becomes of them, an accepted payment is settled once, to the unit.

test('a node that takes a transaction and says it failed causes no second one', async (t) => {
  const line = await openLine(t)
  line.proxy.fault = only('eth_sendRawTransaction', async (_, forward) => {
    await forward()
    return { error: { code: -32000, message: 'already known' } }
  })
  await assertPaidOnce(line, await line.pay(1), 1_000n)
  assert.equal(await batchesOnChain(line.bench), 1n)
})

test('a transaction that is dropped is sent again, byte by byte the same', async (t) => {
  const line = await openLine(t)
  const sent: Hex[] = []
  line.proxy.fault = only('eth_sendRawTransaction', async ({ params }, forward) => {
    const raw = params[0] as Hex
    sent.push(raw)
    return sent.length < 3 ? { result: keccak256(raw) } : forward()
  })
  await assertPaidOnce(line, await line.pay(1), 1_000n)
  assert.equal(sent.length >= 3, true)
  assert.equal(new Set(sent.slice(0, 3)).size, 1)
})

test('a transaction that stays out of every block is replaced under the same nonce for a higher fee', async (t) => {
  const line = await openLine(t, { replaceMs: 100, resendMs: 20 })
  const raws = new Set<Hex>()
  line.proxy.fault = only('eth_sendRawTransaction', async ({ params }, forward) => {
    raws.add(params[0] as Hex)
    return raws.size < 3 ? { result: keccak256(params[0] as Hex) } : forward()
  })
  await assertPaidOnce(line, await line.pay(1), 1_000n)
  const versions = [...raws].map((raw) => parseTransaction(raw))
  assert.equal(new Set(versions.map(({ nonce }) => nonce)).size, 1)
  assert.equal(new Set(versions.map(({ data }) => data)).size, 1)
  const fees = versions.map(({ maxFeePerGas }) => maxFeePerGas!)
  assert.ok(fees.every((fee, index) => index === 0 || fee >= (fees[index - 1]! * 110n) / 100n))
  await untilAlarm(line.bench, 'transaction_stuck')
})

test('a payment names the mined transaction, also after a replacement and while the node has no receipt', async (t) => {
  const line = await openLine(t, { replaceMs: 100, resendMs: 20 })
  const raws = new Set<Hex>()
  line.proxy.fault = async ({ method, params }, forward) => {
    if (method === 'eth_getTransactionReceipt') return { result: null }
    if (method !== 'eth_sendRawTransaction') return forward()
    raws.add(params[0] as Hex)
    return { result: keccak256(params[0] as Hex) }
  }
  const [id] = await line.pay(1)
  await untilFits(
    async () => raws.size,
    (count) => count > 1,
  )
  const [first] = [...raws]
  await publicClient(line.bench.chain.url).sendRawTransaction({ serializedTransaction: first! })
  assert.equal((await ended(line.url, id!)).transactionHash, keccak256(first!))
})

// At the sandbox's price the first version offers 40 gwei: the next would offer 50, which is above the limit.
const noReplacement = { gasPriceMax: 45_000_000_000n, replaceMs: 100, resendMs: 20 }

test('a transaction that is lost when no higher fee may be offered is sent again as it is', async (t) => {
  const line = await openLine(t, noReplacement)
  line.proxy.fault = only('eth_sendRawTransaction', async ({ params }) => ({ result: keccak256(params[0] as Hex) }))
  const ids = await line.pay(2)
  await untilAlarm(line.bench, 'gas_too_dear')
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 2_000n)
})

test('a new relayer need not outbid the old one, whose offer was the highest that is paid', async (t) => {
  const line = await openLine(t, noReplacement)
  const { bench, proxy } = line
  proxy.fault = only('eth_sendRawTransaction', async ({ params }) => ({ result: keccak256(params[0] as Hex) }))
  const ids = await line.pay(2)
  await untilAlarm(bench, 'gas_too_dear')
  await line.stop()
  const { url } = await bench.start({ ...noReplacement, relayerKey: await appointRelayer(bench, 'the next relayer') })
  await assertPaidOnce({ ...line, url }, ids, 2_000n)
})

test('when another transaction takes the relayer’s nonce the payments go into a new batch', async (t) => {
  const line = await openLine(t)
  let isDropping = true
  line.proxy.fault = only('eth_sendRawTransaction', async ({ params }, forward) => {
    return isDropping ? { result: keccak256(params[0] as Hex) } : forward()
  })
  const ids = await line.pay(2)
  await untilFits(
    () => transferOf(line.url, ids[0]!),
    ({ status }) => status === 'batched',
  )
  isDropping = false
  line.proxy.fault = only('eth_sendRawTransaction', async () => 'hang up')
  const client = publicClient(line.bench.chain.url)
  const nonce = await client.getTransactionCount({ address: relayer.address })
  await client.sendRawTransaction({ serializedTransaction: await signTransfer(relayer, nonce, seller.address, 0n) })
  await untilAlarm(line.bench, 'transaction_superseded')
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 2_000n)
})

test('an abandoned batch that is mined later settles once, and its replacement settles nothing twice', async (t) => {
  const line = await openLine(t, { replaceMs: 100 })
  const raws: Hex[] = []
  const lying: RpcFault = async ({ method, params }, forward) => {
    if (method === 'eth_getTransactionCount') return { result: '0x64' }
    if (method !== 'eth_sendRawTransaction') return forward()
    raws.push(params[0] as Hex)
    return { result: keccak256(params[0] as Hex) }
  }
  // The first batch is made while the node reports the relayer's nonce correctly.
  line.proxy.fault = only('eth_sendRawTransaction', lying)
  const ids = await line.pay(3)
  await untilFits(
    async () => raws.length,
    (count) => count > 0,
  )
  line.proxy.fault = lying
  await untilAlarm(line.bench, 'transaction_superseded')
  await untilFits(
    async () => new Set(raws).size,
    (count) => count > 1,
  )
  await publicClient(line.bench.chain.url).sendRawTransaction({ serializedTransaction: raws[0]! })
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 3_000n)
  await assertNothingOpen(line.bench)
})

test('a batch that reverts is sent again in smaller parts', async (t) => {
  const line = await openLine(t)
  let estimates = 0
  line.proxy.fault = only('eth_estimateGas', async (_, forward) => {
    estimates += 1
    // Enough for a block to include it, and too little for the batch: the transaction fails on chain.
    return estimates <= 2 ? { result: '0x13880' } : forward()
  })
  const ids = await line.pay(6)
  await assertPaidOnce(line, ids, 6_000n)
  await untilAlarm(line.bench, 'transaction_reverted')
  const { body } = await ask(line.url, '/v1/batches')
  assert.ok(body.batches.some(({ state }: { state: string }) => state === 'released'))
})

test('a relayer without gas loses nothing: payments wait until it has some', async (t) => {
  const bench = await openBench(t)
  const poor = account('a relayer of its own')
  const setRelayer = { abi: settlementGatewayAbi, functionName: 'setRelayer', args: [poor.address, true] } as const
  await sendCall(bench.chain, relayer, bench.wallet, encodeFunctionData(setRelayer))
  const { url } = await bench.start({ relayerKey: keccak256(Buffer.from('a relayer of its own')) })
  await deposit(bench, payer, 1_000_000n)
  await untilBalance(url, payer.address, '1')
  const id = await settle(url, await paymentBody(bench.wallet, payer))
  await untilAlarm(bench, 'relayer_without_gas')
  assert.equal((await transferOf(url, id)).status, 'received')
  await bench.chain.admin.giveUsdc(poor.address, 1_000_000n)
  assert.equal((await ended(url, id)).status, 'completed')
})

test('a new relayer finishes the transaction of an old one that has no gas left', async (t) => {
  const line = await openLine(t)
  line.proxy.fault = only('eth_sendRawTransaction', async ({ params }) => ({ result: keccak256(params[0] as Hex) }))
  const ids = await line.pay(2)
  await untilFits(
    () => transferOf(line.url, ids[0]!),
    ({ status }) => status === 'batched',
  )
  await line.stop()
  // With another nonce of the old relayer used in between, its transaction can never be executed.
  const relayerKey = await appointRelayer(line.bench, 'the next relayer')
  const { url } = await line.bench.start({ relayerKey, replaceMs: 50 })
  await assertPaidOnce({ ...line, url }, ids, 2_000n)
})

test('of two gateways one sends; when it goes the other takes over', async (t) => {
  const bench = await openBench(t)
  const first = await bench.start()
  const second = await bench.start()
  await deposit(bench, payer, 1_000_000n)
  await untilBalance(second.url, payer.address, '1')
  const pay = async (url: string) => settle(url, await paymentBody(bench.wallet, payer))
  const ids = await Promise.all([pay(first.url), pay(second.url), pay(first.url), pay(second.url)])
  for (const id of ids) assert.equal((await ended(second.url, id)).status, 'completed')
  const later = await pay(first.url)
  await first.stop()
  assert.equal((await ended(second.url, later)).status, 'completed')
  assert.equal(await onChain(bench, seller.address), 5_000n)
  const [books] = await bench.database.query<{ calls: bigint; batches: bigint }>(
    `select count(*) as calls, (select count(*) from gateway.batches where state = 'settled') as batches from gateway.calls`,
  )
  assert.equal(books!.calls, books!.batches)
  assert.equal(await batchesOnChain(bench), books!.batches)
})

test('when gas costs a hundred times as much batches wait', async (t) => {
  const line = await openLine(t, { gasPriceMax: 100_000_000_000n })
  line.proxy.fault = only('eth_getBlockByNumber', async (_, forward) => {
    const { result } = await forward()
    return { result: { ...result, baseFeePerGas: '0x1d1a94a2000' } }
  })
  const ids = await line.pay(1)
  await untilAlarm(line.bench, 'gas_too_dear')
  line.proxy.fault = undefined
  await assertPaidOnce(line, ids, 1_000n)
})

/** Gives an address the role and the gas of a relayer, by a transaction of the old one. Returns the new key. */
async function appointRelayer({ chain, wallet }: GatewayBench, name: string): Promise<Hex> {
  const { address } = account(name)
  const setRelayer = { abi: settlementGatewayAbi, functionName: 'setRelayer', args: [address, true] } as const
  await sendCall(chain, relayer, wallet, encodeFunctionData(setRelayer))
  await chain.admin.giveUsdc(address, 1_000_000n)
  return keccak256(Buffer.from(name))
}
