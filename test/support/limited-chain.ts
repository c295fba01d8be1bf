import type { TestContext } from 'node:test'
import { decodeDeployData, type Hex, keccak256, numberToHex, pad, toEventSelector } from 'viem'
import { readEachAbi, readEachBytecode } from '../../contracts/generated/ReadEach.abi.ts'
import type { PaceClock } from '../../src/chain/pace.ts'
import { type RpcAnswer, type RpcCall, type RpcProxy, startRpcProxy } from './rpc-proxy.ts'
import { systemLog } from './sandbox-chain.ts'

export type LimitedChain = RpcProxy & {
  refused: number
  /** Transactions by hash, with the block that each is in. */
  readonly sent: ReadonlyMap<Hex, number>
  /** A native transfer of an atomic unit, in a block of this time. */
  pay(to: Hex, atMs: number): void
}

const blockMs = 500
/** By how many blocks the backends of the URL lag. */
const lags = [0, 1, 2]
const logsMs = 2_000
const callsMs = 500
/** Calls that may come in a burst. */
const burst = 2

/** A node like Arc's public ones: half a log search and two calls a second, and several backends with different heads. */
export async function startLimitedChain(t: TestContext, clock: PaceClock): Promise<LimitedChain> {
  const payments: { readonly to: Hex; readonly block: number }[] = []
  // Of one sender.
  const sent = new Map<Hex, number>()
  const node: LimitedChain = Object.assign(await startRpcProxy(t, 'http://127.0.0.1:1'), {
    refused: 0,
    sent,
    pay: (to: Hex, atMs: number) => void payments.push({ to, block: Math.ceil(atMs / blockMs) }),
  })
  const buckets = [bucket(clock, callsMs, burst), bucket(clock, logsMs, 1)] as const
  node.fault = async ({ method, params }) => {
    const isAllowed = buckets[0]() && (method !== 'eth_getLogs' || buckets[1]())
    if (!isAllowed) {
      node.refused += 1
      return { error: { code: -32_011, message: 'request limit reached' } }
    }
    const head = Math.floor(clock.now() / blockMs) - lags[node.calls.length % lags.length]!
    return answerOf({ method, params }, head)
  }
  return node

  function answerOf({ method, params }: RpcCall, head: number): RpcAnswer {
    if (method === 'eth_chainId') return { result: '0x13b2' }
    if (method === 'eth_blockNumber') return { result: numberToHex(Math.max(head, 0)) }
    if (method === 'eth_estimateGas') return { result: numberToHex(120_000) }
    if (method === 'eth_getBalance') return { result: numberToHex(10n ** 20n) }
    if (method === 'eth_getBlockByNumber') return { result: { baseFeePerGas: numberToHex(20_000_000_000n) } }
    if (method === 'eth_sendRawTransaction') return { result: send(params[0] as Hex, head) }
    if (method === 'eth_getTransactionReceipt') return { result: receiptOf(params[0] as Hex, head) }
    if (method === 'eth_getTransactionCount') {
      const upTo = params[1] === 'latest' ? head : Number(params[1])
      if (upTo > head) return { error: { code: -32_014, message: 'head not available' } }
      return { result: numberToHex([...sent.values()].filter((block) => block <= upTo).length) }
    }
    const [{ fromBlock, toBlock, data }, at] = params as [{ fromBlock: Hex; toBlock: Hex; data: Hex }, Hex]
    if (Number(method === 'eth_getLogs' ? toBlock : at) > head) {
      return { error: { code: -32_014, message: 'head not available' } }
    }
    if (method === 'eth_call') return { result: readBalances(data) }
    const found = payments.filter(({ block }) => block >= Number(fromBlock) && block <= Number(toBlock))
    return { result: found.map(transferLog) }
  }

  function send(raw: Hex, head: number): Hex {
    const hash = keccak256(raw)
    // The same transaction may be sent again.
    if (!sent.has(hash)) sent.set(hash, head + lags.length)
    return hash
  }

  function receiptOf(hash: Hex, head: number): object | null {
    const block = sent.get(hash)
    if (block === undefined || block > head) return null
    const [gasUsed, effectiveGasPrice] = [numberToHex(110_000), numberToHex(20_000_000_000n)]
    return { transactionHash: hash, blockNumber: numberToHex(block), status: '0x1', gasUsed, effectiveGasPrice }
  }
}

/** Every address has one atomic unit. */
function readBalances(data: Hex): Hex {
  const { args } = decodeDeployData({ abi: readEachAbi, bytecode: readEachBytecode, data })
  const accounts = (args![2] as Hex).length / 2 / 20
  return `0x00${'0000000000000001'.repeat(Math.floor(accounts))}`
}

export function transferLog({ to, block }: { readonly to: Hex; readonly block: number }, index: number) {
  return {
    address: systemLog as string,
    topics: [toEventSelector('Transfer(address,address,uint256)'), pad('0xaa', { size: 32 }), pad(to)],
    data: numberToHex(10n ** 12n, { size: 32 }),
    blockNumber: numberToHex(block),
    blockHash: numberToHex(block, { size: 32 }),
    transactionHash: numberToHex(block, { size: 32 }),
    logIndex: numberToHex(index),
  }
}

function bucket(clock: PaceClock, everyMs: number, most: number): () => boolean {
  let [left, atMs] = [most, 0]
  return () => {
    left = Math.min(most, left + (clock.now() - atMs) / everyMs)
    atMs = clock.now()
    if (left < 1) return false
    left -= 1
    return true
  }
}
