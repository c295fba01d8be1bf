import assert from 'node:assert/strict'
import { test } from 'node:test'
import { encodeFunctionData, type Hex, keccak256, parseTransaction } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { beginDeposits } from '../../src/ledger/chain-cursors.ts'
import { assignAddress, type DepositAccount } from '../../src/ledger/deposit-addresses.ts'
import { listDeposits } from '../../src/ledger/deposits.ts'
import { findOpenSweeps } from '../../src/ledger/sweeps.ts'
import { reconcileArrivals, sweepDeposits, watchDeposits } from '../../src/settlement/deposits.ts'
import type { Address } from '../../src/signer/address.ts'
import { blacklister, depositSuite, relayer, stranger, sweepMin } from '../support/deposit-bench.ts'
import { earlier } from '../support/earlier.ts'
import { account as chainAccount, sendCall } from '../support/gateway.ts'
import { partitions } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { publicClient, usdc } from '../support/sandbox-chain.ts'
import { keys } from '../support/signing.ts'
import { until } from '../support/until.ts'

// How deposits get from their addresses into the gateway's contract: which, when, in what order, and once.

const deposits = depositSuite()
const { openAccount, openSender, sentCount, send, round, untilCredited, shown, onChain, alarms, cleanUps } = deposits

test('when another transaction took its nonce, or a third party was faster, the deposit is still made once', async () => {
  for (const rival of ['of the relayer', 'of a stranger'] as const) {
    const account = await openAccount()
    await send(account.address, 200_000n)
    let isSwallowed = false
    deposits.proxy.fault = async ({ method }, forward) => {
      if (method !== 'eth_sendRawTransaction') return forward()
      isSwallowed = true
      return { error: { code: -32_000, message: 'transaction rejected' } }
    }
    await until(async () => {
      await round()
      return isSwallowed
    })
    const [sweep] = await findOpenSweeps(deposits.bench.database)
    const { data } = parseTransaction(`0x${sweep!.signedTransaction!.toString('hex')}`)
    if (rival === 'of a stranger') await sendCall(deposits.bench.chain, stranger, deposits.bench.wallet, data!)
    else await sendCall(deposits.bench.chain, relayer, stranger.address, '0x')
    deposits.proxy.fault = undefined
    await untilCredited(account, 200_000n)
    await round()
    assert.deepEqual(await findOpenSweeps(deposits.bench.database), [])
    const [incoming, ...others] = await shown(account)
    assert.equal(incoming?.state, 'credited')
    assert.ok(incoming.creditedAt)
    assert.deepEqual(others, [])
    assert.equal(await onChain(account), 200_000n)
  }
})

test('a sweep that stays out of every block is replaced for a higher fee, and whichever version lands it is one deposit', async () => {
  for (const landing of ['the newest', 'the first'] as const) {
    const account = await openAccount()
    await send(account.address, 200_000n)
    const raws = new Set<Hex>()
    deposits.proxy.fault = async ({ method, params }, forward) => {
      if (method !== 'eth_sendRawTransaction') return forward()
      raws.add(params[0] as Hex)
      return { result: keccak256(params[0] as Hex) }
    }
    const impatient = { ...deposits.parts, sender: openSender('sweeper', { replaceMs: 0 }) }
    await until(async () => {
      await watchDeposits(impatient)
      await sweepDeposits(impatient)
      return raws.size > 2
    })
    const versions = [...raws].map((raw) => parseTransaction(raw))
    assert.equal(new Set(versions.map(({ nonce }) => nonce)).size, 1)
    for (const [index, next] of versions.slice(1).entries()) {
      const { maxFeePerGas = 0n, maxPriorityFeePerGas = 0n } = versions[index]!
      // Nodes refuse a replacement that does not offer a tenth more of both.
      assert.ok(next.maxFeePerGas! * 10n >= maxFeePerGas * 11n)
      assert.ok(next.maxPriorityFeePerGas! > 0n && next.maxPriorityFeePerGas! * 10n >= maxPriorityFeePerGas * 11n)
    }
    const raw = [...raws].at(landing === 'the first' ? 0 : -1)!
    await publicClient(deposits.bench.chain.url).sendRawTransaction({ serializedTransaction: raw })
    deposits.proxy.fault = undefined
    await untilCredited(account, 200_000n)
    await round()
    assert.deepEqual(await findOpenSweeps(deposits.bench.database), [])
    assert.deepEqual(
      (await shown(account)).map(({ amount, state }) => [amount, state]),
      [[200_000n, 'credited']],
    )
    assert.equal(await onChain(account), 200_000n)
  }
})

test('what a clock that was ahead has written delays no deposit', async () => {
  const { bench, proxy } = deposits
  const account = await openAccount()
  const setAhead = (column: string) =>
    bench.database.query(`update sweeps set ${earlier(column, "interval '-1 day'")} where account_id = $1`, [
      account.id,
    ])
  await send(account.address, 200_000n)
  proxy.fault = async ({ method }, forward) =>
    method === 'eth_estimateGas' ? { error: { code: -32_000, message: 'not now' } } : forward()
  await until(async () => {
    await round()
    return (await findOpenSweeps(bench.database)).length > 0
  })
  proxy.fault = undefined
  await setAhead('created_at')
  await untilCredited(account, 200_000n)
  await setAhead('changed_at')
  await send(account.address, 200_000n)
  await untilCredited(account, 400_000n)
})

test('sweeps go one at a time, so that none takes the nonce of another', async () => {
  const accounts = [await openAccount(), await openAccount(), await openAccount()]
  for (const { address } of accounts) await send(address, 1_000_000n)
  const raws = new Set<Hex>()
  deposits.proxy.fault = async ({ method, params }, forward) => {
    if (method === 'eth_getTransactionReceipt') return { error: { code: -32_011, message: 'request limit reached' } }
    if (method !== 'eth_sendRawTransaction') return forward()
    raws.add(params[0] as Hex)
    return { result: keccak256(params[0] as Hex) }
  }
  for (let again = 0; again < 4; again += 1) await round()
  assert.equal(raws.size, 1)
  const open = await findOpenSweeps(deposits.bench.database)
  assert.deepEqual(
    open.map(({ state }) => state),
    ['sent', 'planned', 'planned'],
  )
  deposits.proxy.fault = undefined
  const before = await sentCount()
  for (const account of accounts) await untilCredited(account, 1_000_000n)
  assert.equal(await sentCount(), before + 3)
})

async function blocklist(functionName: 'blacklist' | 'unBlacklist', { address }: DepositAccount): Promise<void> {
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName, args: [address as Hex] })
  await sendCall(deposits.bench.chain, blacklister, usdc, data)
}

/** What happened that long ago is over. */
async function passMinutes({ id }: DepositAccount, minutes: number): Promise<void> {
  await deposits.bench.database.query(
    `update sweeps set ${earlier('changed_at', "$2 * interval '1 minute'")} where account_id = $1`,
    [id, minutes],
  )
}

async function sweepsOf({ id }: DepositAccount): Promise<readonly string[]> {
  const rows = await deposits.bench.database.query<{ state: string }>(
    'select state from sweeps where account_id = $1 order by nonce',
    [id],
  )
  return rows.map(({ state }) => state)
}

const refused = 'a deposit into the gateway was refused'

test('a deposit that the token refuses costs no gas, is tried ever less often, and comes in when it is free again', async () => {
  const account = await openAccount()
  await blocklistAfter(account, 300_000n)
  const sent = await sentCount()
  const tries = async () => {
    for (let again = 0; again < 5; again += 1) await round()
    await reconcileArrivals(deposits.parts)
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
  assert.equal(await sentCount(), sent, 'nothing was sent')
  await blocklist('unBlacklist', account)
  await passMinutes(account, 8)
  await untilCredited(account, 300_000n)
  // What was refused before it came in counts no more.
  await blocklistAfter(account, 1_000_000n)
  assert.equal(await tries(), 6)
  await passMinutes(account, 1)
  assert.equal(await tries(), 7)
  await blocklist('unBlacklist', account)
})

test('a deposit that reverts though the node foresaw nothing costs one transaction, and not one in every round', async () => {
  const account = await openAccount()
  await blocklistAfter(account, 300_000n)
  deposits.proxy.fault = async ({ method }, forward) => (method === 'eth_estimateGas' ? { result: '0x1' } : forward())
  const sent = await sentCount()
  for (let again = 0; again < 10; again += 1) await round()
  assert.equal(await sentCount(), sent + 1)
  assert.deepEqual([await sweepsOf(account), alarms], [['failed'], [refused]])
  deposits.proxy.fault = undefined
  await blocklist('unBlacklist', account)
  await passMinutes(account, 1)
  await untilCredited(account, 300_000n)
})

test('a restored ledger that lacks sweeps tries the next nonces immediately, until one is free', async () => {
  const account = await openAccount()
  for (const total of [1_000_000n, 2_000_000n, 3_000_000n]) {
    await send(account.address, 1_000_000n)
    await untilCredited(account, total)
  }
  await deposits.bench.database.query('delete from sweeps where account_id = $1', [account.id])
  await send(account.address, 200_000n)
  await untilCredited(account, 3_200_000n)
  assert.deepEqual(await sweepsOf(account), ['failed', 'failed', 'failed', 'credited'])
})

test('arrivals that wait for long are checked once a minute, not in every round', async () => {
  const account = await openAccount()
  await send(account.address, 1n)
  await round()
  await deposits.bench.database.query(
    `update arrivals set ${earlier('seen_at', "interval '11 minutes'")} where sweep_id is null and account_id = $1`,
    [account.id],
  )
  deposits.proxy.calls.length = 0
  await sweepDeposits(deposits.parts)
  const digits = account.address.slice(2)
  assert.deepEqual(
    deposits.proxy.calls.filter(({ params }) => JSON.stringify(params).includes(digits)),
    [],
  )
  await send(account.address, 200_000n)
  await untilCredited(account, 200_001n)
})

test('small transfers to one account are one sweep in ten minutes, and a large one does not wait for them', async () => {
  const account = await openAccount()
  await send(account.address, 100_000n)
  await untilCredited(account, 100_000n)
  const look = async () => {
    for (let again = 0; again < 3; again += 1) await round()
    await reconcileArrivals(deposits.parts)
    await round()
    return (await sweepsOf(account)).length
  }
  for (let count = 0; count < 3; count += 1) {
    await send(account.address, 100_000n)
    assert.equal(await look(), 1)
  }
  const waits = async () => {
    const [newest] = await listDeposits(
      deposits.bench.database,
      { partition: account.partition, accountId: account.id },
      { limit: 1 },
    )
    return newest!.waitsUntil
  }
  const waitMs = (await waits())!.getTime() - Date.now()
  assert.ok(waitMs > 8 * 60_000 && waitMs < 11 * 60_000, 'the holder is told when it will be swept')
  await passMinutes(account, 10)
  assert.equal(await waits(), undefined)
  await untilCredited(account, 400_000n)
  assert.equal((await sweepsOf(account)).length, 2)
  await send(account.address, 999_999n)
  assert.equal(await look(), 2)
  assert.notEqual(await waits(), undefined)
  await send(account.address, 1n)
  await watchDeposits(deposits.parts)
  assert.equal(await waits(), undefined, 'together they are large enough not to wait')
  await untilCredited(account, 1_400_000n)
  assert.equal((await sweepsOf(account)).length, 3)
  assert.equal(await waits(), undefined)
})

/** Books of their own and a relayer with that much gas. */
async function openCrowd(name: string, gas: bigint) {
  const fresh = await testDatabase()
  cleanUps.push(() => fresh.drop())
  const { database } = fresh
  await beginDeposits({ database, readHead: deposits.parts.chain.finalBlock, fromBlock: undefined })
  const payer = chainAccount(name)
  await deposits.bench.chain.admin.giveUsdc(payer.address, gas)
  const own = { ...deposits.parts, database, sender: openSender(name) }
  return {
    own,
    async give(amount: bigint): Promise<string> {
      const { partition, id } = await createAccount(database, 'test', partitions)
      const { address } = keys.ofAccount(id)
      await assignAddress(database, { partition, id, address })
      await deposits.bench.chain.admin.giveUsdc(address, amount)
      return id
    },
    async round(): Promise<void> {
      await watchDeposits(own)
      await sweepDeposits(own)
      await reconcileArrivals(own)
    },
    /** Amounts that are in the contract, in the order in which the relayer sent them. */
    async swept(): Promise<readonly bigint[]> {
      const rows = await database.query<{ amount: bigint; signed_tx: Buffer }>(
        `select amount, signed_tx from sweeps where state in ('confirmed', 'credited')`,
      )
      const nonce = (signed: Buffer) => parseTransaction(`0x${signed.toString('hex')}`).nonce ?? 0
      return rows.sort((a, b) => nonce(a.signed_tx) - nonce(b.signed_tx)).map(({ amount }) => amount)
    },
  }
}

test('200 accounts with 0.10 USDC cannot use up the gas for a deposit of 1 USDC', async () => {
  const { own, give, round: look, swept } = await openCrowd('poor sweeper', 550_000n)
  for (let count = 0; count < 200; count += 1) await give(sweepMin)
  for (let again = 0; again < 6; again += 1) await look()
  const small = (await swept()).length
  assert.ok(small >= 20 && small <= 80, `${small} small deposits were swept`)
  const gas = () => deposits.parts.chain.gasBalance(own.sender.address as Address)
  assert.ok((await gas()) > 4n * 10n ** 17n)
  assert.deepEqual(await findOpenSweeps(own.database), [], 'nothing is planned that would not be sent')

  await give(1_000_000n)
  await look()
  assert.deepEqual((await swept()).slice(small), [1_000_000n])

  await deposits.bench.chain.admin.giveUsdc(own.sender.address, 100_000_000n)
  for (let again = 0; again < 2; again += 1) await look()
  assert.ok((await swept()).length >= small + 21, 'small deposits go on when there is gas')
})

test('deposits are swept in turn: large amounts first, and accounts that were swept already after the others', async () => {
  const { own, give, round: look, swept } = await openCrowd('fair sweeper', 100_000_000n)
  const busy = await give(3_000_000n)
  for (let again = 0; again < 2; again += 1) await look()
  for (const amount of [100_000n, 300_000n, 1_000_000n, 2_000_000n]) await give(amount)
  await deposits.bench.chain.admin.giveUsdc(keys.ofAccount(busy).address, 5_000_000n)
  await look()
  assert.deepEqual(await swept(), [3_000_000n, 2_000_000n, 1_000_000n, 5_000_000n, 300_000n, 100_000n])
  // Of those that wait to be sent, as after a time without gas.
  const node = deposits.proxy.fault
  deposits.proxy.fault = async ({ method }, forward) =>
    method === 'eth_sendRawTransaction' ? { error: { code: -32_000, message: 'insufficient funds' } } : forward()
  for (let count = 0; count < 40; count += 1) await give(sweepMin)
  for (let again = 0; again < 2; again += 1) await look()
  assert.equal((await findOpenSweeps(own.database)).length, 40)
  await give(1_000_000n)
  await watchDeposits(own)
  deposits.proxy.fault = node
  await until(async () => {
    await sweepDeposits(own)
    return (await swept()).length >= 9
  })
  // One of the small ones was sent before the large one came, and transactions of one relayer land in order.
  assert.deepEqual((await swept()).slice(6, 9), [sweepMin, 1_000_000n, sweepMin])
})

/** Money that arrives in the last moment before its address is blocked. */
async function blocklistAfter(account: DepositAccount, atomic: bigint): Promise<void> {
  await send(account.address, atomic)
  await blocklist('blacklist', account)
}
