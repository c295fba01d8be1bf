import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { encodeFunctionData, type Hex, parseTransaction } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { type RpcFault, startRpcProxy } from '../../test/support/rpc-proxy.ts'
import {
  account,
  chainId,
  publicClient,
  signTransfer,
  startChain,
  usdc,
  usdcBalance,
} from '../../test/support/sandbox-chain.ts'
import {
  type CallFate,
  type ContractCall,
  type SenderOptions,
  type SenderProblem,
  type SenderStep,
  type SignedTransaction,
  TransactionSender,
  type Version,
} from './lands-once.ts'
import { CallRevertsError, ChainNode } from './node.ts'

// The call moves a coin, and nothing in the contract prevents a second execution: only the sender's rules do.

const recipient = account('recipient').address
const call: ContractCall = {
  to: usdc,
  data: encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [recipient, 1n] }),
}

/** A chain, a node in front of it, and the process's stored state. */
async function openBench(t: TestContext) {
  const chain = await startChain(t)
  await chain.ready
  const proxy = await startRpcProxy(t, chain.url)
  const stored: (SignedTransaction & { sender: Version['sender'] })[] = []
  const problems: SenderProblem['code'][] = []
  for (const name of ['first', 'second']) {
    await chain.admin.giveUsdc(account(name).address, 10_000_000n)
    await chain.admin.giveUsdc(account(name).address, 100n)
  }
  return { url: chain.url, proxy, stored, problems }
}

type Bench = Awaited<ReturnType<typeof openBench>>

/** A process that has to get the call into the chain; it ends when the call has ended, or in a crash. */
async function live({ url, proxy, stored, problems }: Bench, options: Partial<SenderOptions> & { name?: string } = {}) {
  const sender = new TransactionSender({
    node: new ChainNode(proxy.url),
    chainId,
    account: account(options.name ?? 'first'),
    resendMs: 0,
    onProblem: ({ code }) => problems.push(code),
    ...options,
  })
  const add = async (transaction: SignedTransaction) => void stored.unshift({ ...transaction, sender: sender.address })
  const versions = { read: async () => stored.map((version) => ({ ...version, ageMs: 1n })), add }
  const begin = async () => {
    const signed = await sender.sign(call)
    await add(signed)
    await sender.broadcast(signed.raw)
  }
  if (stored.length === 0) await begin()
  for (let look = 0; look < 20; look += 1) {
    const fate: CallFate = await sender.pursue(call, versions, await publicClient(url).getBlockNumber())
    if (fate.state === 'superseded') await begin()
    else if (fate.state !== 'waiting') return fate.state
  }
  return 'waiting'
}

const balance = ({ url }: Bench) => usdcBalance(url, recipient)

class Crash extends Error {}

/** Kills the process at the n-th such step. */
function crashAt(name: SenderStep, reach: number): (step: SenderStep) => void {
  let reached = 0
  return (step) => {
    if (step === name) reached += 1
    if (step === name && reached === reach) throw new Crash()
  }
}

/** The node does this to the first so many transactions. */
function dealing(way: 'swallows' | 'denies' | 'forwards', count: number): RpcFault {
  let left = count
  return async ({ method }, forward) => {
    if (method !== 'eth_sendRawTransaction' || left === 0) return forward()
    left -= 1
    if (way !== 'swallows') await forward()
    return way === 'forwards' ? forward() : { error: { code: -32_000, message: 'transaction rejected' } }
  }
}

test('whatever the node says to a broadcast, and wherever the process dies, the call lands once', async (t) => {
  const bench = await openBench(t)
  let landed = 0n
  for (const node of ['forwards', 'swallows', 'denies'] as const) {
    for (const step of ['stored', 'sent', 'receipt_seen'] as const) {
      for (const replaceMs of [30_000, 0]) {
        bench.stored.length = 0
        bench.proxy.fault = dealing(node, 3)
        await live(bench, { onStep: crashAt(step, 1), replaceMs }).catch(unlessCrash)
        await live(bench, { onStep: crashAt(step, 2), replaceMs }).catch(unlessCrash)
        assert.equal(await live(bench, { replaceMs }), 'succeeded')
        landed += 1n
        assert.equal(
          await balance(bench),
          landed,
          `a node that ${node}, killed at ${step}, replacing after ${replaceMs}`,
        )
      }
    }
  }
})

test('a transaction that stays out is replaced under its nonce for a higher fee, and any of the versions may land', async (t) => {
  const bench = await openBench(t)
  bench.proxy.fault = dealing('swallows', 3)
  assert.equal(await live(bench, { replaceMs: 0 }), 'succeeded')
  const versions = bench.stored.map(({ raw }) => parseTransaction(raw))
  assert.equal(versions.length, 4)
  assert.equal(new Set(versions.map(({ nonce }) => nonce)).size, 1)
  const fees = versions.map(({ maxFeePerGas }) => maxFeePerGas!)
  assert.ok(
    fees.every((fee, index) => index === 0 || fee < fees[index - 1]!),
    'the newest offers most',
  )

  bench.stored.length = 0
  bench.proxy.fault = dealing('swallows', 100)
  assert.equal(await live(bench, { replaceMs: 0 }), 'waiting')
  await publicClient(bench.url).sendRawTransaction({ serializedTransaction: bench.stored.at(-1)!.raw })
  bench.proxy.fault = undefined
  assert.equal(await live(bench, { replaceMs: 0 }), 'succeeded')
  assert.equal(await balance(bench), 2n)
})

test('when another sender used the nonce, the transaction is signed again with the next one', async (t) => {
  const bench = await openBench(t)
  bench.proxy.fault = dealing('swallows', 100)
  assert.equal(await live(bench), 'waiting')
  const [first] = bench.stored
  const stranger = await signTransfer(account('first'), Number(first!.nonce), recipient, 0n)
  await publicClient(bench.url).sendRawTransaction({ serializedTransaction: stranger as Hex })
  bench.proxy.fault = undefined
  assert.equal(await live(bench), 'succeeded')
  assert.equal(bench.stored[0]!.nonce, first!.nonce + 1n)
  assert.equal(await balance(bench), 1n)
})

test('a new relayer takes over a call of one that cannot send any more', async (t) => {
  const bench = await openBench(t)
  bench.proxy.fault = dealing('swallows', 100)
  assert.equal(await live(bench), 'waiting')
  bench.proxy.fault = undefined
  assert.equal(await live(bench, { name: 'second', replaceMs: 0 }), 'succeeded')
  assert.deepEqual(new Set(bench.stored.map(({ sender }) => sender)).size, 2)
})

test('transactions that the contract would refuse, that cost too much or that cannot be paid are not signed; each is logged once', async (t) => {
  const bench = await openBench(t)
  const poor = { node: new ChainNode(bench.url), chainId, account: account('poor'), onProblem: () => {} }
  await assert.rejects(new TransactionSender(poor).sign(call), CallRevertsError)
  const tight = new TransactionSender({ ...poor, account: account('first') })
  await assert.rejects(tight.sign({ ...call, gas: 1_000n }), CallRevertsError)
  const told: string[] = []
  const dear = new TransactionSender({
    ...poor,
    account: account('first'),
    gasPriceMax: 1n,
    onProblem: ({ code }) => told.push(code),
  })
  for (let again = 0; again < 3; again += 1) await assert.rejects(dear.sign(call), /postponed/)
  assert.deepEqual(told, ['gas_too_dear'])
})

function unlessCrash(error: unknown): void {
  if (!(error instanceof Crash)) throw error
}
