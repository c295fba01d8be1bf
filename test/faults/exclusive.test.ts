import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { tryExclusive, wakeHolder } from '../../src/db/exclusive.ts'
import { requestDepositAddress } from '../../src/ledger/deposit-addresses.ts'
import { requestWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { atEnd } from '../support/at-end.ts'
import { openPayer } from '../support/ledger.ts'
import { testDatabase } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { TcpProxy } from './tcp-proxy.ts'

// Two settlement processes at the same time could pay a withdrawal and refund it. A process that may have lost its lock must know it.

test('one process has the lock at a time, and the next gets it on release', async (t) => {
  const { url, drop } = await testDatabase()
  atEnd(t, drop)
  const first = await tryExclusive(url, 'test')
  assert.ok(first !== undefined)
  assert.equal(await tryExclusive(url, 'test'), undefined)
  await first.release()
  await first.lost
  const second = await tryExclusive(url, 'test')
  assert.ok(second !== undefined)
  await second.release()
})

test('the holder of the lock is woken when a transaction with work for it is committed, and by no other', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  const woken: string[] = []
  const [first, other] = await Promise.all([
    tryExclusive(url, 'test', { onWoken: () => woken.push('test') }),
    tryExclusive(url, 'other', { onWoken: () => woken.push('other') }),
  ])
  await assert.rejects(
    database.transaction(async (connection) => {
      await wakeHolder(connection, 'test')
      throw new Error('rolled back')
    }),
  )
  await database.transaction(async (connection) => {
    await wakeHolder(connection, 'test')
    await wakeHolder(connection, 'test')
  })
  await until(() => woken.length > 0)
  await wakeHolder(database, 'other')
  await until(() => woken.includes('other'))
  assert.deepEqual(woken, ['test', 'other'])
  await Promise.all([first?.release(), other?.release()])
})

// Customers get the address, or the transfer, about a second earlier.
test('a request for a deposit address or a withdrawal wakes settlement', async (t) => {
  const { url, database, drop } = await testDatabase()
  atEnd(t, drop)
  let woken = 0
  const settlement = await tryExclusive(url, 'settlement', { onWoken: () => (woken += 1) })
  atEnd(t, () => settlement!.release())
  const { partition, accountId } = await openPayer(database, 10_000n)
  await requestDepositAddress(database, { partition, id: accountId })
  await until(() => woken === 1)
  // Settlement knows already.
  await requestDepositAddress(database, { partition, id: accountId })
  await requestWithdrawal(database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: fromAtomic(10_000n),
    recipient: `0x${'a'.repeat(40)}`,
    min: fromAtomic(1n),
  })
  await until(() => woken === 2)
})

test('a connection that is silent without being closed counts as lost', async (t) => {
  const { url, drop } = await testDatabase()
  atEnd(t, drop)
  const target = new URL(url)
  const proxy = await TcpProxy.open(() => ({ path: `${target.searchParams.get('host')}/.s.PGSQL.5432` }))
  atEnd(t, () => proxy.close())
  const alone = await tryExclusive(
    `postgresql://${target.username}@127.0.0.1:${proxy.port}${target.pathname}`,
    'test',
    // The default time for an answer: it must not run out while this process connects and takes the lock, however busy the machine is.
    { beatMs: 20 },
  )
  assert.ok(alone !== undefined)
  void proxy.use({ type: 'delay', ms: 10_000 })
  await alone.lost
})
