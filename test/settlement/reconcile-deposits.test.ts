import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { type Hex, keccak256, toEventSelector, toHex } from 'viem'
import { createAccount } from '../../src/ledger/accounts.ts'
import { readCursor } from '../../src/ledger/chain-cursors.ts'
import { assignAddress, type DepositAccount } from '../../src/ledger/deposit-addresses.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import {
  type DepositParts,
  reconcileArrivals,
  reconcileDeposits,
  sweepDeposits,
  watchDeposits,
} from '../../src/settlement/deposits.ts'
import { checkSolvency } from '../../src/settlement/solvency.ts'
import type { Address } from '../../src/signer/address.ts'
import { depositSuite } from '../support/deposit-bench.ts'
import { partitions } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { keys } from '../support/signing.ts'
import { until } from '../support/until.ts'

// Deposits that the node's logs do not tell are found by comparing the ledger with the chain.

const deposits = depositSuite()
const { openAccount, send, round, balanceOf, untilCredited, onChain, alarms, cleanUps } = deposits
const transferTopic = toEventSelector('Transfer(address,address,uint256)')

test('many accounts are compared with the chain in few calls, and one by one where a node accepts no more', async () => {
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
    deposits.proxy.calls.length = 0
    await work()
    return deposits.proxy.calls.filter(({ method }) => method === 'eth_call').length
  }
  const seller = deposits.parts.terms.seller
  const look = () => checkSolvency({ database, chain: deposits.parts.chain, seller })
  assert.equal(await counted(look), 1, 'of the accounts and the seller')
  assert.equal(await counted(() => reconcileArrivals({ ...deposits.parts, database })), 1)
  assert.equal(await counted(() => reconcileDeposits({ ...deposits.parts, database })), 1)
  const report = await look()
  // One of them had a deposit that its books did not know.
  assert.deepEqual([report.accounts, report.on_chain_atomic, report.owed_atomic], [250, '150000', '150250'])
  // A node that knows only calls to contracts.
  deposits.proxy.fault = async ({ method, params }, forward) => {
    const isPlain = method !== 'eth_call' || (params[0] as { to?: string }).to !== undefined
    return isPlain ? forward() : { error: { code: -32_602, message: 'to is missing' } }
  }
  assert.deepEqual({ ...(await look()), block: '' }, { ...report, block: '' })
})

// One address, several nodes behind it: what the late one says is of the past, and would freeze the ledger.
test('a node that is behind the ledger is not compared with it', async () => {
  const { database, chain } = deposits.parts
  const account = await openAccount()
  await send(account.address, 300_000n)
  const before = await chain.finalBlock()
  await until(async () => {
    await round()
    return (await balanceOf(account)) > 0n
  })
  const late = { ...chain, finalBlock: async () => before - 1n }
  const behind = /the chain node is at block \d+, but the ledger has read up to block \d+/
  await assert.rejects(checkSolvency({ database, chain: late, seller: deposits.parts.terms.seller }), behind)
  await assert.rejects(reconcileArrivals({ ...deposits.parts, chain: late }), behind)
  const report = await checkSolvency({ database, chain, seller: deposits.parts.terms.seller })
  assert.ok(!report.short.some(({ address }) => address === account.address))
})

test('a transfer whose log the node never sent is found by the balance', async () => {
  const account = await openAccount()
  deposits.proxy.fault = async ({ method }, forward) => (method === 'eth_getLogs' ? { result: [] } : forward())
  await send(account.address, 500_000n)
  for (let again = 0; again < 3; again += 1) await round()
  deposits.proxy.fault = undefined
  for (let again = 0; again < 3; again += 1) await round()
  assert.equal(await balanceOf(account), 0n)
  await reconcileArrivals(deposits.parts)
  await untilCredited(account, 500_000n)
})

test('a deposit whose log the node never sent is found by the contract’s balance, and credited once', async () => {
  const account = await openAccount()
  deposits.proxy.fault = async ({ method }, forward) => {
    const answer = await forward()
    if (method !== 'eth_getLogs') return answer
    return { result: answer.result.filter(({ topics }: { topics: Hex[] }) => topics[0] === transferTopic) }
  }
  await send(account.address, 600_000n)
  await until(async () => {
    await round()
    return (await onChain(account)) === 600_000n
  })
  await until(
    async () => (await deposits.parts.gatewayClient.processedHeight()) >= (await deposits.parts.chain.finalBlock()),
  )
  await round()
  deposits.proxy.fault = undefined
  await round()
  assert.equal(await balanceOf(account), 0n, 'its block has been read')
  assert.equal(await reconcileDeposits(deposits.parts), 1)
  assert.equal(await reconcileDeposits(deposits.parts), 0)
  assert.equal(await balanceOf(account), 600_000n)
  assert.deepEqual(alarms, ['deposits were missing from the logs of the chain node'])
})

test('a deposit in a block that was not read yet does not count as missing from the logs', async () => {
  const { chain, gatewayClient } = deposits.parts
  const account = await openAccount()
  await send(account.address, 650_000n)
  await watchDeposits(deposits.parts)
  await until(async () => {
    await sweepDeposits(deposits.parts)
    return (await onChain(account)) === 650_000n
  })
  await until(async () => (await gatewayClient.processedHeight()) >= (await chain.finalBlock()))
  assert.equal(await balanceOf(account), 0n, 'its block has not been read')
  assert.equal(await reconcileDeposits(deposits.parts), 0)
  assert.equal(await balanceOf(account), 650_000n)
  assert.deepEqual(alarms, [])
})

// On a chain of two blocks a second 20,000 blocks are three hours.
test('a deposit that was missed long ago is found a part in each turn, and a surplus that nothing explains calls a person once', async () => {
  const { database, chain, gatewayClient } = deposits.parts
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
    ...deposits.parts,
    gatewayClient: { ...gatewayClient, processedHeight: async () => row!.block + later },
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
