import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { numberToHex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { atEnd } from '../../test/support/at-end.ts'
import { startLimitedChain, transferLog } from '../../test/support/limited-chain.ts'
import { startRpcProxy } from '../../test/support/rpc-proxy.ts'
import { type VirtualClock, virtualClock } from '../../test/support/virtual-clock.ts'
import { type CallVersions, type SignedTransaction, TransactionSender } from '../chain/lands-once.ts'
import { ChainNode } from '../chain/node.ts'
import type { Address } from '../signer/address.ts'
import { type Chain, openChain, refuseUnusableNode } from './chain.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as Address

test('a node that is still syncing is retried; one that refuses is named, without its key', async (t) => {
  const answers: object[] = [
    { error: { code: -32002, message: 'still replaying' } },
    { result: '0x4cef52' },
    { error: { code: -32001, message: 'no such key' } },
  ]
  const server = createServer((_, response) =>
    response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, ...answers.shift() })),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => {
    server.close()
    server.closeAllConnections()
  })
  const rpcUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v2/hunter2hunter2hunter2hunter2`
  const open = () => openChain({ rpcUrl, usdc: address('1'), gatewayWallet: address('2') })
  assert.equal((await refuseUnusableNode(rpcUrl, open)).chainId, 5_042_002)
  await assert.rejects(refuseUnusableNode(rpcUrl, open), (error: Error) => {
    assert.match(error.message, /^CHAIN_RPC_URL cannot be used: .*no such key/)
    assert.doesNotMatch(error.message, /hunter/)
    return true
  })
})

test('a transfer that is logged twice counts once, by the log that the setting names', async (t) => {
  const [to, usdc] = [address('7'), address('1')]
  const node = await startRpcProxy(t, 'http://127.0.0.1:1')
  const bySystem = transferLog({ to, block: 5 }, 0)
  // A node that ignores the filter.
  const logs = [bySystem, { ...bySystem, logIndex: '0x1', address: usdc, data: numberToHex(1n, { size: 32 }) }]
  node.fault = async ({ method }) => ({ result: method === 'eth_getLogs' ? logs : '0x1' })
  for (const depositLogs of ['system', 'token'] as const) {
    const chain = await openChain({ rpcUrl: node.url, usdc, gatewayWallet: address('2'), depositLogs })
    const { arrivals } = await chain.moneyIn([to], 1n, 9n)
    const found = arrivals.map(({ amount, logIndex }) => [amount, logIndex])
    assert.deepEqual(found, [[1n, depositLogs === 'system' ? 0 : 1]])
  }
})

test('a public node with 10,000 accounts: deposits are seen in time, sweeps and withdrawals land once, comparisons go on, and the limits are kept', async (t) => {
  // An hour: SETTLEMENT_MINUTES=60.
  const minutes = Number(process.env.SETTLEMENT_MINUTES ?? 6)
  const clock = virtualClock(4)
  const limited = await startLimitedChain(t, clock)
  const node = new ChainNode(limited.url, { clock })
  const accounts = Array.from({ length: 10_000 }, (_, index) => numberToHex(index + 1, { size: 20 }) as Address)
  const [usdc, gatewayWallet] = [address('1'), address('2')]
  const chain = await clock.only(() => openChain({ rpcUrl: limited.url, usdc, gatewayWallet, node }))
  const every = async (ms: number, work: () => Promise<unknown>) => {
    while (clock.now() < minutes * 60_000) {
      await work()
      // As setInterval does, whose turns do not overlap.
      await clock.sleep(ms - (clock.now() % ms))
    }
    clock.leave()
  }
  const delaysMs: number[] = []
  let [read, compared] = [0n, 0]
  const paid: number[] = []
  const transactions = openTransactions(clock, node, chain)
  await Promise.all([
    every(2_000, async () => {
      const head = await chain.finalBlockOfLogs()
      if (head <= read) return
      const { arrivals } = await chain.moneyIn(accounts, read + 1n, head)
      delaysMs.push(...arrivals.map(({ block }) => clock.now() - Number(block) * 500))
      for (const _ of arrivals) transactions.add()
      read = head
    }),
    every(10_000, async () => {
      const balances = await chain.gatewayBalances(accounts, await chain.finalBlock())
      assert.equal(balances.length, accounts.length)
      compared += 1
    }),
    every(1_000, () => transactions.advance()),
    // A customer pays every 37 s, and another one withdraws.
    every(37_000, async () => {
      transactions.add()
      paid.push(clock.now())
      limited.pay(accounts[paid.length * 7]!, clock.now() + 250)
    }),
  ])
  const { landedAfterMs, left } = transactions
  t.diagnostic(
    `${limited.calls.length / minutes} calls a minute, ${limited.refused} refused, ${Math.max(...delaysMs)} ms until a deposit was seen, ${landedAfterMs.length} transactions after at most ${Math.max(...landedAfterMs)} ms`,
  )
  assert.ok(landedAfterMs.length + left() === paid.length + delaysMs.length && left() <= 2, `${left()} left`)
  assert.equal(limited.sent.size, landedAfterMs.length + transactions.pending(), 'each is sent once')
  assert.ok(Math.max(...landedAfterMs) <= 30_000, `${Math.max(...landedAfterMs)} ms`)
  assert.ok(delaysMs.length >= paid.length - 1 && delaysMs.length <= paid.length)
  assert.ok(Math.max(...delaysMs) <= 5_000, `${Math.max(...delaysMs)} ms`)
  assert.ok(limited.calls.length <= minutes * 120 * 1.1, `${limited.calls.length} calls`)
  assert.ok(limited.refused <= 2 + minutes / 30, `${limited.refused} refused`)
  assert.ok(compared >= minutes * 3, `${compared} comparisons`)
})

/** The relayer's transactions, sweeps and withdrawals, one at a time as settlement and gateway send them. */
function openTransactions(clock: VirtualClock, node: ChainNode, chain: Chain) {
  const account = privateKeyToAccount(`0x${'22'.repeat(32)}`)
  const sender = new TransactionSender({ node, chainId: chain.chainId, account, clock: clock.now, onProblem: () => {} })
  const waiting: number[] = []
  const landedAfterMs: number[] = []
  let versions: (SignedTransaction & { readonly atMs: number })[] = []
  const call = { to: address('2'), data: '0x12' } as const
  const stored: CallVersions = {
    read: async () =>
      versions.map((version) => ({
        ...version,
        sender: sender.address,
        ageMs: BigInt(Math.round(clock.now() - version.atMs)),
      })),
    async add(transaction) {
      versions.unshift({ ...transaction, atMs: clock.now() })
    },
  }
  return {
    landedAfterMs,
    add: () => void waiting.push(clock.now()),
    left: () => waiting.length,
    pending: () => versions.length,
    async advance() {
      if (waiting.length === 0) return
      if (versions.length === 0) {
        await stored.add(await sender.sign(call))
        return sender.broadcast(versions[0]!.raw)
      }
      const { state } = await sender.pursue(call, stored, await chain.finalBlock())
      assert.ok(state !== 'reverted' && state !== 'superseded', state)
      if (state !== 'succeeded') return
      landedAfterMs.push(clock.now() - waiting.shift()!)
      versions = []
    },
  }
}
