import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { concat, encodeFunctionData, type Hex, numberToHex, pad, toEventSelector } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { ChainNode } from '../../src/chain/node.ts'
import { createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { readBalance } from '../../src/ledger/balance.ts'
import { beginDeposits, readCursor } from '../../src/ledger/chain-cursors.ts'
import { assignAddress } from '../../src/ledger/deposit-addresses.ts'
import { readLedgerNumbers } from '../../src/ledger/ledger-numbers.ts'
import { findOpenSweeps } from '../../src/ledger/sweeps.ts'
import { openChain } from '../../src/settlement/chain.ts'
import { reconcileArrivals, sweepDeposits, watchDeposits } from '../../src/settlement/deposits.ts'
import { checkSolvency } from '../../src/settlement/solvency.ts'
import { startAnnouncer } from '../support/announcing-node.ts'
import { atEnd } from '../support/at-end.ts'
import { depositSuite, stranger } from '../support/deposit-bench.ts'
import { sendCall } from '../support/gateway.ts'
import { partitions } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import type { RpcAnswer } from '../support/rpc-proxy.ts'
import { chainId, gasAllowance, publicClient, usdc, walletClient } from '../support/sandbox-chain.ts'
import { keys } from '../support/signing.ts'
import { until } from '../support/until.ts'

// Deposits, from the token's log to the balance, over our own gateway and chain, with a node in between that may do anything.

const deposits = depositSuite()
const { openAccount, send, round, balanceOf, untilCredited, depositsOf, shown, onChain, alarms, cleanUps } = deposits
const transferTopic = toEventSelector('Transfer(address,address,uint256)')
const weiPerAtomic = 10n ** 12n
const runs = Number(process.env.SETTLEMENT_RUNS ?? 4)

test('USDC sent to the deposit address is credited once, though Arc logs every transfer twice', async () => {
  const account = await openAccount()
  await send(account.address, 250_000n)
  await untilCredited(account, 250_000n)
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 250_000n)
  assert.equal(await depositsOf(account), 1)
  assert.deepEqual(
    (await shown(account)).map(({ amount, state }) => [amount, state]),
    [[250_000n, 'credited']],
  )
  assert.deepEqual(alarms, [])
})

// What the address is paid by: a wallet's native send, the token, or a contract that passes on or leaves what it got.
const endowedCode =
  (code: string) =>
  (to: string): PaidBy => ({ data: `0x${code.replace('ADDRESS', to.slice(2))}` as Hex })
const kindsOfSend: Readonly<Record<string, (to: string) => PaidBy>> = {
  'a native send': (to) => ({ to: to as Hex }),
  'a contract’s internal transfer': endowedCode('5f5f5f5f3473ADDRESS5af100'),
  'the endowment of a contract that destroys itself': endowedCode('73ADDRESSff'),
}
type PaidBy = { readonly to?: Hex; readonly data?: Hex }

for (const [kind, paidBy] of Object.entries(kindsOfSend)) {
  test(`${kind} is seen by the next look at the chain, with its transaction, and credited once`, async () => {
    const account = await openAccount()
    const hash = await pay(paidBy(account.address), 150_000n * weiPerAtomic + 5n)
    await watchDeposits(deposits.parts)
    const [seen, ...others] = await shown(account)
    assert.deepEqual([seen?.amount, seen?.seenTxHash?.toString('hex')], [150_000n, hash.slice(2)])
    if (kind === 'a native send') assert.equal(seen?.sender, stranger.address.toLowerCase())
    assert.deepEqual(others, [])
    await untilCredited(account, 150_000n)
    for (let again = 0; again < 3; again += 1) await round()
    assert.deepEqual([await balanceOf(account), await depositsOf(account)], [150_000n, 1])
    assert.deepEqual(alarms, [])
  })
}

test('dust stays at the address and counts when it adds up; a transfer to oneself counts for none', async () => {
  const account = await openAccount()
  for (const wei of [600_000_000_000n, 600_000_000_000n]) await pay({ to: account.address as Hex }, wei)
  await pay({ to: stranger.address }, 700_000n * weiPerAtomic)
  await watchDeposits(deposits.parts)
  assert.deepEqual(await shown(account), [])
  await pay({ to: account.address as Hex }, 149_999n * weiPerAtomic)
  await untilCredited(account, 150_000n)
})

test('a deposit that a node announces is seen without a look at the logs, and counts once when they are read', async (t) => {
  const { bench, proxy, parts } = deposits
  const announcer = await startAnnouncer(t, chainId)
  const node = new ChainNode(proxy.url)
  const announcements = node.listen(announcer.url, chainId)
  atEnd(t, () => announcements.close())
  const { usdcAddress, gatewayWallet } = parts.terms
  const chain = await openChain({ rpcUrl: proxy.url, usdc: usdcAddress, gatewayWallet, node })
  const account = await openAccount()
  await pay({ to: stranger.address }, weiPerAtomic)
  await watchDeposits({ ...parts, chain })
  const connection = await announcer.subscribed()
  await until(() => connection.filters.some(({ topics }) => (topics[2] as Hex[]).includes(pad(account.address as Hex))))

  const hash = await pay({ to: account.address as Hex }, 150_000n * weiPerAtomic)
  const { logs } = (await publicClient(bench.chain.url).request({
    method: 'eth_getTransactionReceipt',
    params: [hash],
  })) as { logs: object[] }
  proxy.calls.length = 0
  for (const log of [{ ...logs[0], topics: [transferTopic] }, { ...logs[0], data: '0x' }, ...logs, ...logs]) {
    connection.announceLog(log)
  }
  await until(async () => (await shown(account)).length > 0)
  assert.ok(proxy.calls.every(({ method }) => method !== 'eth_getLogs'))
  await untilCredited(account, 150_000n)
  const seen = (await shown(account)).map(({ amount, sender, seenTxHash }) => [
    amount,
    sender,
    seenTxHash?.toString('hex'),
  ])
  assert.deepEqual(seen, [[150_000n, stranger.address.toLowerCase(), hash.slice(2)]])
  assert.equal(await depositsOf(account), 1)
})

// An exchange pays out to many of our customers at once; more than are asked for by address.
test('500 payments in one block are seen by one look at the logs, each once', async () => {
  const accounts = await Promise.all(Array.from({ length: 500 }, () => openAccount()))
  // Sends an atomic unit to each address in its input.
  const code: Hex = '0x601b8060093d393df35f5b5f5f5f5f64e8d4a5100085355af15060200136811060015700'
  const client = publicClient(deposits.bench.chain.url)
  const { contractAddress } = await client.getTransactionReceipt({ hash: await pay({ data: code }, 0n) })
  const payAll = (some: typeof accounts) =>
    pay(
      { to: contractAddress!, data: concat(some.map(({ address }) => pad(address as Hex))) },
      BigInt(some.length) * weiPerAtomic,
    )
  // A payment to an address that never had any costs more gas: 500 of them do not fit into one block.
  await payAll(accounts.slice(0, 250))
  await payAll(accounts.slice(250))
  await watchDeposits(deposits.parts)
  await payAll(accounts)
  deposits.proxy.calls.length = 0
  await watchDeposits(deposits.parts)
  assert.deepEqual(
    deposits.proxy.calls.map(({ method }) => method),
    ['eth_blockNumber', 'eth_getLogs'],
  )
  await watchDeposits(deposits.parts)
  const sender = contractAddress!.toLowerCase()
  for (const account of accounts) {
    const seen = (await shown(account)).map((arrival) => [arrival.amount, arrival.sender])
    assert.deepEqual(seen, [
      [1n, sender],
      [1n, sender],
    ])
  }
  // What adds up to the least amount of a sweep is credited to the unit.
  for (const account of accounts.slice(-2)) {
    await pay({ to: account.address as Hex }, 149_998n * weiPerAtomic)
    await untilCredited(account, 150_000n)
  }
})

/** A transaction of the stranger with that value; its hash. */
async function pay(call: PaidBy, wei: bigint): Promise<Hex> {
  const { admin, url } = deposits.bench.chain
  await admin.giveUsdc(stranger.address, wei / weiPerAtomic + 1_000_000n)
  const hash = await walletClient(url, stranger).sendTransaction({ ...call, value: wei } as never)
  await publicClient(url).waitForTransactionReceipt({ hash })
  return hash
}

test('without a new block neither logs are read nor the gateway is asked', async () => {
  const { chain, gatewayClient } = deposits.parts
  await until(async () => {
    await round()
    return (await readCursor(deposits.parts.database, 'deposits')) === (await chain.finalBlock())
  })
  deposits.proxy.calls.length = 0
  let asked = 0
  const processedHeight = () => {
    asked += 1
    return gatewayClient.processedHeight()
  }
  await watchDeposits({ ...deposits.parts, gatewayClient: { ...gatewayClient, processedHeight } })
  assert.equal(asked, 0)
  assert.deepEqual(
    deposits.proxy.calls.map(({ method }) => method),
    ['eth_blockNumber'],
  )
})

test('a reader without new blocks grows old, except on a chain that mines a block only for a transaction', async () => {
  const { database, chain } = deposits.parts
  await until(async () => {
    await round()
    return (await readCursor(database, 'deposits')) === (await chain.finalBlock())
  })
  const isOld = async () => (await readLedgerNumbers(database)).cursors.map(({ seconds }) => seconds >= 3_600)
  await database.query("update chain_cursors set changed_at = now() - interval '1 hour'")
  await watchDeposits(deposits.parts)
  assert.deepEqual(await isOld(), [true, true])
  await watchDeposits({ ...deposits.parts, minesOnDemand: true })
  assert.deepEqual(await isOld(), [false, false])
})

test('at the first start the chain is read from its head on, and what is sent to the first address is found', async () => {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  const head = await deposits.parts.chain.finalBlock()
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: undefined })
  const { partition, id } = await createAccount(database, 'test', partitions)
  const account = { partition, id, address: keys.ofAccount(id).address }
  await assignAddress(database, account)
  await send(account.address, 400_000n)
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: undefined })
  deposits.proxy.calls.length = 0
  await until(async () => {
    await watchDeposits({ ...deposits.parts, database })
    await sweepDeposits({ ...deposits.parts, database })
    return (await findAccount(database, partition, id))!.gateway === 400_000n
  })
  const first = deposits.proxy.calls.flatMap(({ method, params }) => {
    return method === 'eth_getLogs' ? [BigInt((params[0] as { fromBlock: string }).fromBlock)] : []
  })
  assert.ok(first.length > 0 && first.every((block) => block > head), 'nothing before the first address is read')
})

test('new addresses are watched from the first block, or from the configured one', async () => {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  const { partition, id } = await createAccount(database, 'test', partitions)
  await assignAddress(database, { partition, id, address: keys.ofAccount(id).address })
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: undefined })
  assert.equal(await readCursor(database, 'arrivals'), undefined)
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: 3 })
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: 1_000 })
  assert.deepEqual([await readCursor(database, 'arrivals'), await readCursor(database, 'deposits')], [2n, 2n])
})

test('two processes that see the same deposit credit it once', async () => {
  const account = await openAccount()
  await send(account.address, 300_000n)
  await until(async () => {
    await Promise.all(Array.from({ length: 4 }, round))
    return (await balanceOf(account)) > 0n
  })
  await Promise.all(Array.from({ length: 4 }, round))
  assert.equal(await balanceOf(account), 300_000n)
  assert.equal(await onChain(account), 300_000n)
  assert.equal(await depositsOf(account), 1)
})

test('other tokens, empty transfers and USDC to unknown addresses are not credited', async () => {
  const account = await openAccount()
  await deposits.bench.chain.admin.giveUsdc(stranger.address, gasAllowance)
  // A contract that logs a transfer of five of its own coins to the account while it is made.
  const words = [transferTopic, pad(stranger.address), pad(account.address as Hex)].map((word) => `7f${word.slice(2)}`)
  const code: Hex = `0x624c4b40600052${words.reverse().join('')}60206000a300`
  await walletClient(deposits.bench.chain.url, stranger).sendTransaction({ data: code, gas: 200_000n })
  const nothing = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [account.address as Hex, 0n] })
  await sendCall(deposits.bench.chain, stranger, usdc, nothing)
  await send('0x00000000000000000000000000000000000dead1', 700_000n)
  // And a node that ignores the filter: it sends the logs of every contract.
  deposits.proxy.fault = async ({ method, params }, forward) => {
    if (method !== 'eth_getLogs') return forward()
    const [{ fromBlock, toBlock }] = params as [{ fromBlock: Hex; toBlock: Hex }]
    return (await rpc('eth_getLogs', { fromBlock, toBlock })) as RpcAnswer
  }
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 0n)
  assert.deepEqual(await shown(account), [])
})

// Deposit addresses are compared with their balances once a minute, whatever was read by then.
test('a transfer that arrives while addresses are reconciled does not wait as a deposit after it is credited', async () => {
  const account = await openAccount()
  const { database } = deposits.parts
  await watchDeposits(deposits.parts)
  await send(account.address, 250_000n)
  await reconcileArrivals(deposits.parts)
  await untilCredited(account, 250_000n)
  await round()
  assert.deepEqual(
    (await shown(account)).map(({ amount, state }) => [amount, state]),
    [[250_000n, 'credited']],
  )
  const { pendingDeposits } = await readBalance(database, { partition: account.partition, accountId: account.id })
  assert.equal(pendingDeposits, 0n)
})

test('dust waits, is shown, and comes in together when it is worth the gas', async () => {
  const account = await openAccount()
  for (const amount of [40_000n, 59_999n]) await send(account.address, amount)
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 0n)
  assert.deepEqual(
    (await shown(account)).map(({ state }) => state),
    ['seen', 'seen'],
  )
  await send(account.address, 1n)
  await untilCredited(account, 100_000n)
  assert.equal(await depositsOf(account), 1)
})

test('a third party’s deposit for the account directly into the contract is credited', async () => {
  const account = await openAccount()
  await deposits.bench.chain.admin.giveUsdc(stranger.address, 1_234n + gasAllowance)
  const approve = encodeFunctionData({
    abi: devUsdcAbi,
    functionName: 'approve',
    args: [deposits.bench.wallet, 1_234n],
  })
  await sendCall(deposits.bench.chain, stranger, usdc, approve)
  const args = [usdc, account.address as Hex, 1_234n] as const
  const deposit = encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'depositFor', args })
  await sendCall(deposits.bench.chain, stranger, deposits.bench.wallet, deposit)
  await untilCredited(account, 1_234n)
})

test('logs that come twice, in another order, or of other blocks count once', async () => {
  const account = await openAccount()
  for (const amount of [150_000n, 160_000n]) await send(account.address, amount)
  deposits.proxy.fault = async ({ method }, forward) => {
    const answer = await forward()
    if (method !== 'eth_getLogs') return answer
    const logs = answer.result as { blockNumber: Hex }[]
    const elsewhere = logs.map((log) => ({ ...log, blockNumber: '0xfffffff' }))
    return { result: [...logs, ...elsewhere, ...logs].reverse() }
  }
  await untilCredited(account, 310_000n)
  assert.equal(await onChain(account), 310_000n)
})

test('a node that swallows the transaction, denies what it took, or hides the receipt: the deposit is made once', async () => {
  for (const lie of ['swallows', 'denies', 'hides'] as const) {
    const account = await openAccount()
    await send(account.address, 200_000n)
    let lies = 3
    deposits.proxy.fault = async ({ method }, forward) => {
      const isAbout = method === (lie === 'hides' ? 'eth_getTransactionReceipt' : 'eth_sendRawTransaction')
      if (!isAbout || lies === 0) return forward()
      lies -= 1
      if (lie === 'hides') return { result: null }
      if (lie === 'denies') await forward()
      return { error: { code: -32_000, message: 'transaction rejected' } }
    }
    await untilCredited(account, 200_000n)
    assert.equal(await onChain(account), 200_000n)
    await until(async () => {
      await round()
      return (await findOpenSweeps(deposits.bench.database)).length === 0
    })
  }
})

const nodeFaults = ['none', 'hang up', 'error', 'garbage', 'nothing', 'old head', 'after'] as const

test('whatever the node answers, in whatever order, deposits are credited once and exactly', async () => {
  const answers = fc.array(fc.constantFrom(...nodeFaults), { minLength: 1, maxLength: 60 })
  const amounts = fc.array(fc.integer({ min: 1, max: 400_000 }), { minLength: 1, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(answers, amounts, async (faults, sent) => {
      const account = await openAccount()
      const left = [...faults]
      deposits.proxy.fault = async ({ method }, forward) => {
        switch (left.shift()) {
          case 'hang up':
            return 'hang up'
          case 'after':
            await forward()
            return 'hang up'
          case 'error':
            return { error: { code: -32_011, message: 'request limit reached' } }
          case 'garbage':
            return { text: '<html>' }
          case 'nothing':
            return { result: null }
          case 'old head':
            return method === 'eth_blockNumber' ? { result: '0x1' } : forward()
          default:
            return forward()
        }
      }
      for (const amount of sent) {
        await send(account.address, BigInt(amount))
        await round()
      }
      deposits.proxy.fault = undefined
      // Large, so that it does not wait after the small ones.
      await send(account.address, 1_000_000n)
      await reconcileArrivals(deposits.parts)
      await untilCredited(
        account,
        sent.reduce((total, amount) => total + BigInt(amount), 1_000_000n),
      )
      assert.equal(await onChain(account), await balanceOf(account))
    }),
    { numRuns: runs },
  )
})

test('three backends with different heads behind one address: each deposit counts once, and no account seems short', async () => {
  const { proxy, parts } = deposits
  let turn = 0
  proxy.fault = async ({ method, params }, forward) => {
    const head = Number(((await rpc('eth_blockNumber')) as RpcAnswer).result) - (turn % 3)
    turn += 1
    const asked = method === 'eth_getLogs' ? (params[0] as { toBlock: string }).toBlock : params[1]
    if (method === 'eth_blockNumber') return { result: numberToHex(head) }
    if (asked === 'latest') return (await rpc(method, params[0], numberToHex(head))) as RpcAnswer
    if (typeof asked === 'string' && Number(asked) > head) return { error: { code: -32_014, message: 'unknown head' } }
    const answer = await forward()
    const isHidden = method === 'eth_getTransactionReceipt' && Number(answer.result?.blockNumber ?? 0) > head
    return isHidden ? { result: null } : answer
  }
  const accounts = [await openAccount(), await openAccount()]
  const { seller } = parts.terms
  let compared = 0
  for (let sent = 1n; sent <= 4n; sent += 1n) {
    for (const account of accounts) await pay({ to: account.address as Hex }, 1_000_000n * weiPerAtomic)
    await until(async () => {
      // The backends that lag know a block when the next ones are there.
      await pay({ to: stranger.address }, weiPerAtomic)
      await round()
      const report = await checkSolvency({ ...parts, seller }).catch(() => undefined)
      assert.deepEqual(report?.short ?? [], [])
      if (report !== undefined) compared += 1
      const balances = await Promise.all(accounts.map(balanceOf))
      return balances.every((balance) => balance === sent * 1_000_000n)
    })
  }
  assert.ok(compared > 0)
  for (const account of accounts) {
    assert.equal(await onChain(account), 4_000_000n)
    assert.deepEqual([(await shown(account)).length, await depositsOf(account)], [4, 4])
  }
})

async function rpc(method: string, ...params: unknown[]): Promise<unknown> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const headers = { 'content-type': 'application/json' }
  return (await fetch(deposits.bench.chain.url, { method: 'POST', headers, body })).json()
}
