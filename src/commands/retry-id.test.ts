import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { TcpProxy } from '../../test/faults/tcp-proxy.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { charge, hold, openLedger, openPayer } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { runCommand } from '../../test/support/run-command.ts'
import { adjustAccount } from '../ledger/adjustments.ts'
import { advanceTransfer } from '../ledger/transfers.ts'
import { requestWithdrawal, setWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { fromAtomic } from '../money/usdc.ts'
import { accountsCommand } from './accounts.ts'
import { withdrawCommand } from './withdraw.ts'

/** An account that was charged, and a connection to the database that can be cut. */
async function openAccount(t: TestContext) {
  const { database, url, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const payer = await openPayer(database, 1_000_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 1_000n))
  const { username, pathname, searchParams } = new URL(url)
  const folder = searchParams.get('host')
  const proxy = await TcpProxy.open(() => ({ path: `${folder}/.s.PGSQL.5432` }))
  atEnd(t, () => proxy.close())
  const proxied = `postgres://${username}@127.0.0.1:${proxy.port}${pathname}?sslmode=disable`
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-retry-id-'))
  atEnd(t, () => rmSync(dataDir, { recursive: true }))
  return { database, payer, proxy, environment: { DATABASE_URL: proxied, DATA_DIR: dataDir } }
}

const unknownOutcome = (what: string) =>
  new RegExp(
    `^The id of this ${what} is (\\S{36})\\. To retry it, add --id \\1\\.\\n` +
      `penny: The outcome of this ${what} is unknown: .*\\. Run the same command again with --id \\1; it is made only once\\.\\n$`,
  )

test('an adjustment whose outcome is unknown says its id, and a retry with it is made once', async (t) => {
  const { database, payer, proxy, environment } = await openAccount(t)
  const adjust = (...more: readonly string[]) => {
    const words = ['adjust', payer.accountId, '--amount=-0.0001', '--reason', 'mistake', '--yes', ...more]
    return runCommand(accountsCommand, words, environment)
  }
  const gift = { id: randomUUID(), amount: 200n, reason: 'gift', madeBy: 'test' }
  await adjustAccount(database, { partition: payer.partition, id: payer.accountId }, gift)
  void proxy.use({ type: 'cut-on', pattern: 'adjust_account', when: 'reply-lost' })
  const lost = await adjust()
  assert.equal(lost.code, 1)
  const [, id] = unknownOutcome('adjustment').exec(lost.text) ?? assert.fail(lost.text)
  assert.match((await adjust('--id', id!)).text, /^Adjusted: /m)
  assert.match((await adjust('--id', id!)).text, /^Already adjusted: /m)
})

test('a withdrawal whose outcome is unknown says its id', async (t) => {
  const { database, payer, proxy, environment } = await openAccount(t)
  await database.query('update accounts set owner_address = $2, owner_usable_from = created_at where id = $1', [
    payer.accountId,
    `0x${'7'.repeat(40)}`,
  ])
  void proxy.use({ type: 'cut-on', pattern: 'request_withdrawal', when: 'reply-lost' })
  const words = ['--amount', '0.5', '--account', payer.accountId, '--yes']
  const lost = await runCommand(withdrawCommand, words, environment)
  assert.equal(lost.code, 1)
  assert.match(lost.text, unknownOutcome('withdrawal'))
})

test('a withdrawal says the gateway’s fee and what arrives before anything is asked, or that the amount is too small', async (t) => {
  const { database, payer, environment } = await openAccount(t)
  await setWithdrawalFeeMax(database, 250_000n)
  const withdraw = (amount: string) =>
    runCommand(withdrawCommand, ['--amount', amount, '--account', payer.accountId], environment)
  assert.match((await withdraw('0.5')).text, /0\.25 USDC arrives: the gateway's fee is at most 0\.25 USDC/)
  await assert.rejects(withdraw('0.25'), /0\.25 USDC cannot be withdrawn: the gateway fee can be up to 0\.25 USDC/)
  assert.deepEqual(await database.query('select from transfers'), [])
})

// Once requested, "all" is no longer in the balance.
test('the withdrawal of everything is followed by the same command with its id', async (t) => {
  const { database, payer, environment } = await openAccount(t)
  const { partition, accountId } = payer
  const id = randomUUID()
  const request = { partition, accountId, id, amount: fromAtomic(999_000n), min: fromAtomic(1n) }
  const stored = await requestWithdrawal(database, { ...request, recipient: `0x${'7'.repeat(40)}` })
  await advanceTransfer(database, stored, {
    state: 'confirmed',
    transactionHash: `0x${'8'.repeat(64)}`,
    fee: fromAtomic(0n),
  })
  const words = ['--amount', 'all', '--account', accountId, '--yes']
  const again = await runCommand(withdrawCommand, [...words, '--id', id], environment)
  assert.deepEqual([again.code, /^Requested: 0\.999 USDC .* \((\S+)\)\.$/m.exec(again.text)?.[1]], [0, id], again.text)
  assert.match((await runCommand(withdrawCommand, words, environment)).text, /There is nothing to withdraw/)
})
