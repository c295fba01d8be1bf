import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, beforeEach, type TestContext, test } from 'node:test'
import fc from 'fast-check'
import { encodeFunctionData, type Hex, keccak256, pad, parseTransaction, toEventSelector, toHex } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { readCursor } from '../../src/ledger/chain-cursors.ts'
import { assignAddress, type DepositAccount } from '../../src/ledger/deposit-addresses.ts'
import { creditDeposit, type ListedDeposit, listDeposits } from '../../src/ledger/deposits.ts'
import { findOpenSweeps } from '../../src/ledger/sweeps.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { paymentTerms } from '../../src/settlement/authorization.ts'
import { beginDeposits } from '../../src/settlement/begin-deposits.ts'
import { openChain } from '../../src/settlement/chain.ts'
import {
  type DepositParts,
  reconcileArrivals,
  reconcileDeposits,
  sweepDeposits,
  watchDeposits,
} from '../../src/settlement/deposits.ts'
import { createRail } from '../../src/settlement/rail.ts'
import { checkSolvency } from '../../src/settlement/solvency.ts'
import type { Address } from '../../src/signer/address.ts'
import { askCustodian, createSigner } from '../../src/signer/signer.ts'
import { type SigningTerms, usdcDomain } from '../../src/signer/signing-terms.ts'
import { account as chainAccount, type GatewayBench, openBench, sendCall } from '../support/gateway.ts'
import { partitions } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { type RpcAnswer, type RpcProxy, startRpcProxy } from '../support/rpc-proxy.ts'
import { chainId, publicClient, usdc, walletClient } from '../support/sandbox-chain.ts'
import { createCustodian, keys, terms as signingTerms } from '../support/signing.ts'
import { until } from '../support/until.ts'

// Deposits, from the token's log to the balance, over our own gateway and chain, with a node in between that may do anything.

const relayer = chainAccount('sweeper')
const stranger = chainAccount('stranger')
// The gateway's own relayer; it sends nothing in these tests.
const blacklister = chainAccount('relayer')
const relayerKey = keccak256(toHex('sweeper'))
const sweepMin = 100_000n
const transferTopic = toEventSelector('Transfer(address,address,uint256)')
const runs = Number(process.env.SETTLEMENT_RUNS ?? 4)

let bench: GatewayBench
let proxy: RpcProxy
let parts: DepositParts
const alarms: string[] = []
const cleanUps: (() => unknown)[] = []

before(async () => {
  const context = { after: (cleanUp: () => unknown) => cleanUps.push(cleanUp) } as unknown as TestContext
  bench = await openBench(context)
  const gateway = await bench.start()
  proxy = await startRpcProxy(context, bench.chain.url)
  await bench.chain.admin.fundGas(relayer.address, 100_000_000n)
  const gatewayWallet = bench.wallet.toLowerCase() as Address
  const terms: SigningTerms = {
    ...signingTerms,
    chainId,
    gatewayWallet,
    gatewayMinter: gatewayWallet,
    gatewayDomain: chainId,
  }
  const rail = createRail({ url: gateway.url, domain: chainId })
  cleanUps.push(() => rail.close())
  parts = {
    database: bench.database,
    chain: await openChain({ rpcUrl: proxy.url, usdc: terms.usdc.address, gatewayWallet, timeoutMs: 10_000 }),
    rail,
    signer: createSigner({ ask: askCustodian(createCustodian(context, { terms })), onFault: assert.ifError }),
    terms: paymentTerms(terms, 0),
    usdcDomain: usdcDomain(terms),
    relayer: { address: relayer.address.toLowerCase() as Address, key: relayerKey },
    sweepMin,
    failpoint: () => {},
    onAlarm: (what) => void alarms.push(what),
  }
})

beforeEach(() => {
  proxy.fault = undefined
  alarms.length = 0
})

after(async () => {
  const violations = await findViolations(bench.database)
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
  assert.deepEqual(violations, [])
})

async function openAccount(): Promise<DepositAccount> {
  const { partition, id } = await createAccount(bench.database, 'test', partitions)
  const account = { partition, id, address: keys.ofAccount(id).address }
  await assignAddress(bench.database, account)
  return account
}

/** A plain transfer of test USDC, as from any wallet. */
async function send(to: string, atomic: bigint): Promise<void> {
  await bench.chain.admin.giveUsdc(stranger.address, atomic)
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [to as Hex, atomic] })
  await sendCall(bench.chain, stranger, usdc, data)
}

/** One round as the settlement process runs it; what a faulty node makes of it is for the next round. */
async function round(): Promise<void> {
  await watchDeposits(parts).catch(() => undefined)
  await sweepDeposits(parts).catch(() => undefined)
}

async function balanceOf({ partition, id }: DepositAccount): Promise<bigint> {
  return (await findAccount(bench.database, partition, id))!.gateway
}

async function untilCredited(account: DepositAccount, amount: bigint): Promise<void> {
  await until(async () => {
    await round()
    return (await balanceOf(account)) === amount
  })
}

async function depositsOf({ id }: DepositAccount): Promise<number> {
  return (await bench.database.query('select 1 from deposits where account_id = $1', [id])).length
}

/** As the account's holder sees them. */
function shown({ partition, id }: DepositAccount): Promise<readonly ListedDeposit[]> {
  return listDeposits(bench.database, { partition, accountId: id }, { limit: 100 })
}

async function onChain({ address }: DepositAccount): Promise<bigint> {
  const args = [usdc, address as Hex] as const
  const client = publicClient(bench.chain.url)
  return client.readContract({ address: bench.wallet, abi: settlementGatewayAbi, functionName: 'totalBalance', args })
}

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

test('at the first start the chain is read from its head on, and what is sent to the first address is found', async () => {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  const head = await parts.chain.finalBlock()
  await beginDeposits({ database, readHead: parts.chain.finalBlock, fromBlock: undefined })
  const { partition, id } = await createAccount(database, 'test', partitions)
  const account = { partition, id, address: keys.ofAccount(id).address }
  await assignAddress(database, account)
  await send(account.address, 400_000n)
  await beginDeposits({ database, readHead: parts.chain.finalBlock, fromBlock: undefined })
  proxy.calls.length = 0
  await until(async () => {
    await watchDeposits({ ...parts, database })
    await sweepDeposits({ ...parts, database })
    return (await findAccount(database, partition, id))!.gateway === 400_000n
  })
  const first = proxy.calls.flatMap(({ method, params }) => {
    return method === 'eth_getLogs' ? [BigInt((params[0] as { fromBlock: string }).fromBlock)] : []
  })
  assert.ok(first.length > 0 && first.every((block) => block > head), 'nothing before the first address is read')
})

test('addresses that nobody watched yet are watched from the first block on, or from where the operator says', async () => {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  const { partition, id } = await createAccount(database, 'test', partitions)
  await assignAddress(database, { partition, id, address: keys.ofAccount(id).address })
  await beginDeposits({ database, readHead: parts.chain.finalBlock, fromBlock: undefined })
  assert.equal(await readCursor(database, 'arrivals'), undefined)
  await beginDeposits({ database, readHead: parts.chain.finalBlock, fromBlock: 3 })
  await beginDeposits({ database, readHead: parts.chain.finalBlock, fromBlock: 1_000 })
  assert.deepEqual([await readCursor(database, 'arrivals'), await readCursor(database, 'deposits')], [2n, 2n])
})

test('books of many accounts are compared with the chain in few calls, and one by one where a node takes no more', async () => {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  const paying = await openAccount()
  await send(paying.address, 150_000n)
  await untilCredited(paying, 150_000n)
  const accounts: DepositAccount[] = []
  for (let count = 0; count < 250; count += 1) {
    const { partition, id } = await createAccount(database, 'test', partitions)
    // All but the last have nothing, neither here nor there.
    const address = count === 249 ? paying.address : keys.ofAccount(id).address
    await assignAddress(database, { partition, id, address })
    await creditDeposit(database, {
      partition,
      accountId: id,
      id: randomUUID(),
      amount: fromAtomic(1n),
      source: 'test',
    })
    accounts.push({ partition, id, address })
  }
  const counted = async (work: () => Promise<unknown>) => {
    proxy.calls.length = 0
    await work()
    return proxy.calls.filter(({ method }) => method === 'eth_call').length
  }
  const seller = parts.terms.seller
  const look = () => checkSolvency({ database, chain: parts.chain, seller })
  assert.equal(await counted(look), 3, 'of the accounts and the seller')
  assert.equal(await counted(() => reconcileArrivals({ ...parts, database })), 3)
  assert.equal(await counted(() => reconcileDeposits({ ...parts, database })), 3)
  const report = await look()
  // One of them had a deposit that its books did not know.
  assert.deepEqual([report.accounts, report.on_chain_atomic, report.owed_atomic], [250, '150000', '150250'])
  // A node that knows only calls to contracts.
  proxy.fault = async ({ method, params }, forward) => {
    const isPlain = method !== 'eth_call' || (params[0] as { to?: string }).to !== undefined
    return isPlain ? forward() : { error: { code: -32_602, message: 'to is missing' } }
  }
  assert.deepEqual({ ...(await look()), block: '' }, { ...report, block: '' })
})

// One address, several nodes behind it: what the late one says is of the past, and would freeze the books of everybody.
test('a node that is behind what the books have read is not compared with', async () => {
  const { database, chain } = parts
  const account = await openAccount()
  await send(account.address, 300_000n)
  const before = await chain.finalBlock()
  await until(async () => {
    await round()
    return (await balanceOf(account)) > 0n
  })
  const late = { ...chain, finalBlock: async () => before - 1n }
  const behind = /the node is at block \d+, and the books have read up to \d+: nothing was compared/
  await assert.rejects(checkSolvency({ database, chain: late, seller: parts.terms.seller }), behind)
  await assert.rejects(reconcileArrivals({ ...parts, chain: late }), behind)
  const report = await checkSolvency({ database, chain, seller: parts.terms.seller })
  assert.ok(!report.short.some(({ address }) => address === account.address))
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

test('another token, nothing at all, and USDC to nobody’s address credit nobody', async () => {
  const account = await openAccount()
  await bench.chain.admin.giveUsdc(stranger.address, 1n)
  // A contract that logs a transfer of five of its own coins to the account while it is made.
  const words = [transferTopic, pad(stranger.address), pad(account.address as Hex)].map((word) => `7f${word.slice(2)}`)
  const code: Hex = `0x624c4b40600052${words.reverse().join('')}60206000a300`
  await walletClient(bench.chain.url, stranger).sendTransaction({ data: code, gas: 200_000n })
  const nothing = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [account.address as Hex, 0n] })
  await sendCall(bench.chain, stranger, usdc, nothing)
  await send('0x00000000000000000000000000000000000dead1', 700_000n)
  // And a node that ignores the filter: it sends the logs of every contract.
  proxy.fault = async ({ method, params }, forward) => {
    if (method !== 'eth_getLogs') return forward()
    const [{ fromBlock, toBlock }] = params as [{ fromBlock: Hex; toBlock: Hex }]
    return (await rpc('eth_getLogs', { fromBlock, toBlock })) as RpcAnswer
  }
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 0n)
  assert.deepEqual(await shown(account), [])
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

test('what somebody deposits for the account straight into the contract is credited', async () => {
  const account = await openAccount()
  await bench.chain.admin.giveUsdc(stranger.address, 1_234n)
  const approve = encodeFunctionData({ abi: devUsdcAbi, functionName: 'approve', args: [bench.wallet, 1_234n] })
  await sendCall(bench.chain, stranger, usdc, approve)
  const args = [usdc, account.address as Hex, 1_234n] as const
  const deposit = encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'depositFor', args })
  await sendCall(bench.chain, stranger, bench.wallet, deposit)
  await untilCredited(account, 1_234n)
})

test('logs that come twice, in another order, or of other blocks count once', async () => {
  const account = await openAccount()
  for (const amount of [150_000n, 160_000n]) await send(account.address, amount)
  proxy.fault = async ({ method }, forward) => {
    const answer = await forward()
    if (method !== 'eth_getLogs') return answer
    const logs = answer.result as { blockNumber: Hex }[]
    const elsewhere = logs.map((log) => ({ ...log, blockNumber: '0xfffffff' }))
    return { result: [...logs, ...elsewhere, ...logs].reverse() }
  }
  await untilCredited(account, 310_000n)
  assert.equal(await onChain(account), 310_000n)
})

test('a transfer whose log the node never told is found by the balance', async () => {
  const account = await openAccount()
  proxy.fault = async ({ method }, forward) => (method === 'eth_getLogs' ? { result: [] } : forward())
  await send(account.address, 500_000n)
  for (let again = 0; again < 3; again += 1) await round()
  proxy.fault = undefined
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 0n)
  await reconcileArrivals(parts)
  await untilCredited(account, 500_000n)
})

test('a deposit whose log the node never told is found by what the contract has, and credited once', async () => {
  const account = await openAccount()
  proxy.fault = async ({ method, params }, forward) => {
    if (method !== 'eth_getLogs') return forward()
    const [{ topics }] = params as [{ topics: Hex[] }]
    return topics[0] === transferTopic ? forward() : { result: [] }
  }
  await send(account.address, 600_000n)
  await until(async () => {
    await round()
    return (await onChain(account)) === 600_000n
  })
  await until(async () => (await parts.rail.processedHeight()) >= (await parts.chain.finalBlock()))
  await round()
  proxy.fault = undefined
  await round()
  assert.equal(await balanceOf(account), 0n, 'its block has been read')
  assert.equal(await reconcileDeposits(parts), 1)
  assert.equal(await reconcileDeposits(parts), 0)
  assert.equal(await balanceOf(account), 600_000n)
  assert.deepEqual(alarms, ['the chain had deposits that its logs had not told'])
})

// On a chain of two blocks a second 20,000 blocks are three hours.
test('a deposit that was missed long ago is found a part in each turn, and a surplus that nothing explains calls a person once', async () => {
  const { database, chain, rail } = parts
  const account = await openAccount()
  const told = 'the gateway has more for an account than its deposits explain'
  await send(account.address, 700_000n)
  await untilCredited(account, 700_000n)
  const [row] = await database.query<{ block: bigint }>('select block from deposits where account_id = $1', [
    account.id,
  ])
  const [first] = await database.query<{ block: bigint }>('select min(block) as block from deposits')
  // The chain as it would be long after, on which the contract has another unit for which there is no log at all.
  const later = 65_000n
  const far: DepositParts = {
    ...parts,
    rail: { ...rail, processedHeight: async () => row!.block + later },
    chain: {
      ...chain,
      finalBlock: async () => row!.block + later,
      gatewayBalances: async (depositors) => {
        const balances = await chain.gatewayBalances(depositors, await chain.finalBlock())
        return balances.map((balance, index) => balance + (depositors[index] === account.address ? surplus : 0n))
      },
      async deposits(depositors, from, to) {
        searched.push([from, to])
        assert.ok(to - from < 1_000n)
        const found = from <= row!.block && row!.block <= to
        const missed = { depositor: account.address as Address, amount: 5n, block: row!.block, logIndex: 1_000 }
        return found && depositors.includes(missed.depositor)
          ? [{ ...missed, transactionHash: keccak256(toHex('missed')) }]
          : []
      },
    },
  }
  const searched: [from: bigint, to: bigint][] = []
  let surplus = 6n
  const turns: [missed: number, searched: number, alarms: number][] = []
  for (let turn = 0; turn < 5; turn += 1) {
    searched.length = 0
    turns.push([await reconcileDeposits(far), searched.length, alarms.filter((what) => what === told).length])
  }
  assert.deepEqual(
    turns.map(([missed]) => missed),
    [0, 0, 0, 1, 0],
    JSON.stringify(turns),
  )
  assert.deepEqual(
    turns.map(([, , count]) => count),
    [0, 1, 1, 1, 1],
  )
  assert.ok(
    turns.every(([, chunks]) => chunks <= 21 + 20),
    'a turn has its bounds',
  )
  assert.equal(await balanceOf(account), 700_005n)
  assert.equal(await readCursor(database, `look back ${account.id}`), first!.block)
  // Explained at last: nothing is kept of it.
  surplus = 5n
  assert.equal(await reconcileDeposits(far), 0)
  assert.equal(await readCursor(database, `look back ${account.id}`), undefined)
  await database.query('delete from deposits where account_id = $1 and amount = 5', [account.id])
  await database.query('update accounts set gateway = gateway - 5, deposited = deposited - 5 where id = $1', [
    account.id,
  ])
})

test('a node that swallows the transaction, denies what it took, or hides the receipt: the deposit is made once', async () => {
  for (const lie of ['swallows', 'denies', 'hides'] as const) {
    const account = await openAccount()
    await send(account.address, 200_000n)
    let lies = 3
    proxy.fault = async ({ method }, forward) => {
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
      return (await findOpenSweeps(bench.database)).length === 0
    })
  }
})

test('when another transaction took its place, or anybody was faster, the deposit is still made once', async () => {
  for (const rival of ['of the relayer', 'of a stranger'] as const) {
    const account = await openAccount()
    await send(account.address, 200_000n)
    let isSwallowed = false
    proxy.fault = async ({ method }, forward) => {
      if (method !== 'eth_sendRawTransaction' || isSwallowed) return forward()
      isSwallowed = true
      return { error: { code: -32_000, message: 'transaction rejected' } }
    }
    await until(async () => {
      await round()
      return isSwallowed
    })
    const [sweep] = await findOpenSweeps(bench.database)
    const { data } = parseTransaction(`0x${sweep!.signedTransaction!.toString('hex')}`)
    if (rival === 'of a stranger') await sendCall(bench.chain, stranger, bench.wallet, data!)
    else await sendCall(bench.chain, relayer, stranger.address, '0x')
    await untilCredited(account, 200_000n)
    await round()
    assert.deepEqual(await findOpenSweeps(bench.database), [])
    const [incoming, ...others] = await shown(account)
    assert.equal(incoming?.state, 'credited')
    assert.ok(incoming.creditedAt)
    assert.deepEqual(others, [])
    assert.equal(await onChain(account), 200_000n)
  }
})

async function blocklist(functionName: 'blacklist' | 'unBlacklist', { address }: DepositAccount): Promise<void> {
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName, args: [address as Hex] })
  await sendCall(bench.chain, blacklister, usdc, data)
}

/** What happened that long ago is over. */
async function passMinutes({ id }: DepositAccount, minutes: number): Promise<void> {
  await bench.database.query(
    `update sweeps set changed_at = changed_at - $2 * interval '1 minute' where account_id = $1`,
    [id, minutes],
  )
}

async function sweepsOf({ id }: DepositAccount): Promise<readonly string[]> {
  const rows = await bench.database.query<{ state: string }>(
    'select state from sweeps where account_id = $1 order by nonce',
    [id],
  )
  return rows.map(({ state }) => state)
}

const refused = 'a deposit into the gateway was refused'

test('a deposit that the token refuses costs no gas, is tried ever less often, and comes in when it is free again', async () => {
  const account = await openAccount()
  await blocklistAfter(account, 300_000n)
  const sent = await parts.chain.transactionCount(parts.relayer.address)
  const tries = async () => {
    for (let again = 0; again < 5; again += 1) await round()
    await reconcileArrivals(parts)
    await round()
    return (await sweepsOf(account)).length
  }
  assert.equal(await tries(), 1)
  // A minute after the first failure, two after the second, four after the third.
  for (const [index, minutes] of [1, 2, 4].entries()) {
    await passMinutes(account, minutes - 0.5)
    assert.equal(await tries(), index + 1, `before ${minutes} minutes`)
    await passMinutes(account, 0.5)
    assert.equal(await tries(), index + 2, `after ${minutes} minutes`)
  }
  assert.deepEqual(alarms, [refused, refused, refused, refused], 'one alarm for each')
  assert.equal(await parts.chain.transactionCount(parts.relayer.address), sent, 'nothing was sent')
  await blocklist('unBlacklist', account)
  await passMinutes(account, 8)
  await untilCredited(account, 300_000n)
  // What was refused before it came in counts no more.
  await blocklistAfter(account, 200_000n)
  assert.equal(await tries(), 6)
  await passMinutes(account, 1)
  assert.equal(await tries(), 7)
  await blocklist('unBlacklist', account)
})

test('a deposit that reverts though the node foresaw nothing costs one transaction, and not one in every round', async () => {
  const account = await openAccount()
  await blocklistAfter(account, 300_000n)
  proxy.fault = async ({ method }, forward) => (method === 'eth_estimateGas' ? { result: '0x1' } : forward())
  const sent = await parts.chain.transactionCount(parts.relayer.address)
  for (let again = 0; again < 10; again += 1) await round()
  assert.equal(await parts.chain.transactionCount(parts.relayer.address), sent + 1)
  assert.deepEqual([await sweepsOf(account), alarms], [['failed'], [refused]])
  proxy.fault = undefined
  await blocklist('unBlacklist', account)
  await passMinutes(account, 1)
  await untilCredited(account, 300_000n)
})

test('books that have forgotten sweeps try the next nonce at once, until one is free', async () => {
  const account = await openAccount()
  for (const total of [200_000n, 400_000n, 600_000n]) {
    await send(account.address, 200_000n)
    await untilCredited(account, total)
  }
  await bench.database.query('delete from sweeps where account_id = $1', [account.id])
  await send(account.address, 200_000n)
  await untilCredited(account, 800_000n)
  assert.deepEqual(await sweepsOf(account), ['failed', 'failed', 'failed', 'credited'])
})

test('what has waited for long is asked for once a minute, not in every round', async () => {
  const account = await openAccount()
  await send(account.address, 1n)
  await round()
  await bench.database.query(
    `update arrivals set seen_at = seen_at - interval '11 minutes' where sweep_id is null and account_id = $1`,
    [account.id],
  )
  proxy.calls.length = 0
  await sweepDeposits(parts)
  const digits = account.address.slice(2)
  assert.deepEqual(
    proxy.calls.filter(({ params }) => JSON.stringify(params).includes(digits)),
    [],
  )
  await send(account.address, 200_000n)
  await untilCredited(account, 200_001n)
})

/** Money that arrives in the last moment before its address is blocked. */
async function blocklistAfter(account: DepositAccount, atomic: bigint): Promise<void> {
  await send(account.address, atomic)
  await blocklist('blacklist', account)
}

const nodeFaults = ['none', 'hang up', 'error', 'garbage', 'nothing', 'old head', 'after'] as const

test('whatever the node answers, in whatever order, deposits are credited once and exactly', async () => {
  const answers = fc.array(fc.constantFrom(...nodeFaults), { minLength: 1, maxLength: 60 })
  const amounts = fc.array(fc.integer({ min: 1, max: 400_000 }), { minLength: 1, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(answers, amounts, async (faults, sent) => {
      const account = await openAccount()
      const left = [...faults]
      proxy.fault = async ({ method }, forward) => {
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
      proxy.fault = undefined
      await send(account.address, sweepMin)
      await reconcileArrivals(parts)
      await untilCredited(
        account,
        sent.reduce((total, amount) => total + BigInt(amount), sweepMin),
      )
      assert.equal(await onChain(account), await balanceOf(account))
    }),
    { numRuns: runs },
  )
})

async function rpc(method: string, ...params: unknown[]): Promise<unknown> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const headers = { 'content-type': 'application/json' }
  return (await fetch(bench.chain.url, { method: 'POST', headers, body })).json()
}
