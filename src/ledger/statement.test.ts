import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { atEnd } from '../../test/support/at-end.ts'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { farFromEndOf } from '../../test/support/far-from-end.ts'
import { charge, hold, openLedger, openPayer, search, voided } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createKey, revokeKey } from '../identity/api-keys.ts'
import { fromAtomic } from '../money/usdc.ts'
import { findAccount } from './accounts.ts'
import { adjustAccount } from './adjustments.ts'
import { creditDeposit } from './deposits.ts'
import type { Hold, Payer } from './hold-calls.ts'
import { readStatement, type Statement } from './statement.ts'
import { advanceTransfer } from './transfers.ts'
import { requestWithdrawal, setWithdrawalFeeMax } from './withdrawals.ts'

const ledger = ledgerSuite()
const september = new Date('2026-09-01T00:00:00Z')
const october = new Date('2026-10-01T00:00:00Z')
const november = new Date('2026-11-01T00:00:00Z')
const farAhead = new Date('2100-01-01T00:00:00Z')
const recipient = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'

test('a month’s opening balance and movements sum to its closing balance, which is the next month’s opening one', async () => {
  // Rows of two hours could not be moved to one.
  await farFromEndOf('hour')
  const payer = await openPayer(ledger.database, 1_000_000n)
  await move('deposits', payer, 'created_at', '2026-09-30 23:59:59.999999+00')
  const holds = await openLedger(ledger.database)
  await holds.end(charge(await hold(holds, payer, 1_000n), 300n))
  await move('usage_hours', payer, 'hour', '2026-09-30 23:00+00')
  await search(holds, await hold(holds, payer, 20_000n))
  await holds.end(charge(await hold(holds, payer, 1_000n), 50n))
  await adjust(payer, 100n)
  await withdraw(payer, 2_000n, 'confirmed')
  await withdraw(payer, 5_000n, 'failed')
  for (const table of ['transfers', 'adjustments']) await move(table, payer, 'created_at', '2026-10-01 00:00:00+00')
  await move('usage_hours', payer, 'hour', '2026-10-31 23:00+00', `hour <> '2026-09-30 23:00+00'`)
  await ledger.database.query(
    `update transfers set changed_at = '2026-11-01 00:00:00+00' where account_id = $1 and state = 'failed'`,
    [payer.accountId],
  )

  const first = await readStatement(ledger.database, payer, september, october)
  assert.deepEqual(linesOf(first), ['deposit 1 1000000', 'inference m 1 -300'])
  const second = await readStatement(ledger.database, payer, october, november)
  assert.deepEqual(linesOf(second), ['inference m 2 -50', 'search 1 -8750', 'adjustment 1 100', 'withdrawal 2 -7000'])
  const rest = await readStatement(ledger.database, payer, november, farAhead)
  assert.deepEqual(linesOf(rest), ['withdrawal_returned 1 5000'])

  assert.equal(first.opening, 0n)
  assert.deepEqual([first.closing, second.closing], [second.opening, rest.opening])
  assert.equal(rest.closing, await moneyOf(payer))
  assert.ok([first, second, rest].every(({ addsUp }) => addsUp))
  await assertBooksBalance(ledger.database)
})

test('what a gateway did not take of its fee is in the statement, and it adds up', async (t) => {
  atEnd(t, () => setWithdrawalFeeMax(ledger.database, 0n))
  await setWithdrawalFeeMax(ledger.database, 700n)
  const payer = await openPayer(ledger.database, 1_000_000n)
  await withdraw(payer, 2_000n, 'confirmed', 200n)
  await withdraw(payer, 3_000n, 'confirmed', 700n)
  const statement = await readStatement(ledger.database, payer, september, farAhead)
  assert.deepEqual(linesOf(statement), ['deposit 1 1000000', 'withdrawal 2 -5000', 'withdrawal_fee_returned 1 500'])
  assert.equal(statement.closing, await moneyOf(payer))
  assert.ok(statement.addsUp)
})

test('whatever happens and whenever, every month adds up to the atomic unit, and the last closes on what the account has', async () => {
  const holds = await openLedger(ledger.database)
  const movement = fc.record({
    kind: fc.constantFrom('deposit', 'charge', 'open', 'adjust', 'withdraw', 'fail'),
    amount: fc.bigInt({ min: 1n, max: 500n }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(movement, { maxLength: 12 }), fc.infiniteStream(fc.nat(120)), async (happened, days) => {
      const payer = await openPayer(ledger.database, 10_000n)
      const open: Hold[] = []
      for (const { kind, amount } of happened) {
        if (kind === 'deposit') await deposit(payer, amount)
        if (kind === 'charge') await holds.end(charge(await hold(holds, payer, amount), amount / 2n))
        if (kind === 'open') open.push(await hold(holds, payer, amount))
        if (kind === 'adjust') await adjust(payer, 1n)
        if (kind === 'withdraw' || kind === 'fail')
          await withdraw(payer, amount, kind === 'fail' ? 'failed' : 'confirmed')
      }
      await scatter(payer, days)
      const months = [5, 6, 7, 8, 9, 10].map((month) => new Date(Date.UTC(2026, month)))
      const statements: Statement[] = []
      for (const [at, from] of months.entries())
        statements.push(await readStatement(ledger.database, payer, from, months[at + 1] ?? farAhead))
      assert.ok(statements.every(({ addsUp }) => addsUp))
      for (const statement of statements) assertKeysSum(statement)
      for (const [at, { opening }] of statements.entries())
        assert.equal(opening, at === 0 ? 0n : statements[at - 1]!.closing)
      assert.equal(statements.at(-1)!.closing, await moneyOf(payer))
      for (const one of open) await holds.end(voided(one))
    }),
    { numRuns: 10 },
  )
})

test('the charges of a month are split by key, and the split sums to the lines to the atomic unit', async () => {
  const payer = await openPayer(ledger.database, 1_000_000n)
  const { id: second } = await createKey(ledger.database, { ...payer, name: 'second' })
  const { id: idle } = await createKey(ledger.database, { ...payer, name: 'idle' })
  const holds = await openLedger(ledger.database)
  await holds.end(charge(await hold(holds, payer, 1_000n), 301n))
  for (const cost of [7n, 11n]) await holds.end(charge(await hold(holds, { ...payer, keyId: second }, 1_000n), cost))
  await search(holds, await hold(holds, { ...payer, keyId: second }, 20_000n))
  const statement = await readStatement(ledger.database, payer, september, farAhead)
  assert.deepEqual(
    statement.keys.map(({ keyId, requests, searches, inference, search }) => [
      keyId,
      requests,
      searches,
      inference,
      search,
    ]),
    [
      [second, 3, 1, -18n, -8_750n],
      [payer.keyId, 1, 0, -301n, 0n],
    ],
  )
  assert.ok(!statement.keys.some(({ keyId }) => keyId === idle))
  assertKeysSum(statement)
  assert.deepEqual((await readStatement(ledger.database, payer, september, october)).keys, [])
  await revokeKey(ledger.database, second)
  assert.equal((await readStatement(ledger.database, payer, september, farAhead)).keys.length, 2)
})

function assertKeysSum({ lines, keys }: Statement): void {
  const sumOf = (kind: string) =>
    lines
      .filter((line) => line.kind === kind)
      .reduce((sum, { amount, count }) => [sum[0]! + amount, sum[1]! + BigInt(count)], [0n, 0n])
  const total = (read: (line: Statement['keys'][number]) => bigint) => keys.reduce((sum, line) => sum + read(line), 0n)
  assert.deepEqual([total(({ inference }) => inference), total(({ requests }) => BigInt(requests))], sumOf('inference'))
  assert.deepEqual([total(({ search }) => search), total(({ searches }) => BigInt(searches))], sumOf('search'))
}

function linesOf({ lines }: Statement): readonly string[] {
  return lines.map(({ kind, model, count, amount }) =>
    [kind, model, count, amount].filter((part) => part !== undefined).join(' '),
  )
}

/** All that is the customer's, held or not. */
async function moneyOf({ partition, accountId }: Payer): Promise<bigint> {
  const account = (await findAccount(ledger.database, partition, accountId))!
  return account.gateway + account.credit + account.held
}

/** As if it had happened then. */
async function move(table: string, { accountId }: Payer, column: string, at: string, which = 'true'): Promise<void> {
  await ledger.database.query(`update ${table} set ${column} = $2 where account_id = $1 and ${which}`, [accountId, at])
}

/** Every row to a day of its own, from June to October. */
async function scatter({ accountId }: Payer, days: fc.Stream<number>): Promise<void> {
  const day = () => new Date(Date.UTC(2026, 5, 1 + days.next().value!))
  for (const [table, column] of [
    ['deposits', 'created_at'],
    ['adjustments', 'created_at'],
    ['transfers', 'created_at'],
    ['transfers', 'changed_at'],
    ['usage_hours', 'hour'],
  ] as const) {
    const rows = await ledger.database.query<{ place: string }>(
      `select ctid::text as place from ${table} where account_id = $1`,
      [accountId],
    )
    for (const { place } of rows)
      await ledger.database.query(`update ${table} set ${column} = $1 where ctid = $2::tid`, [day(), place])
  }
}

async function deposit({ partition, accountId }: Payer, amount: bigint): Promise<void> {
  const id = randomUUID()
  await creditDeposit(ledger.database, { partition, id, accountId, amount: fromAtomic(amount), source: 'test' })
}

async function adjust({ partition, accountId }: Payer, amount: bigint): Promise<void> {
  const adjustment = { id: randomUUID(), amount, reason: 'the model was down', madeBy: 'operator' }
  await adjustAccount(ledger.database, { partition, id: accountId }, adjustment)
}

async function withdraw(
  { partition, accountId }: Payer,
  amount: bigint,
  state: 'confirmed' | 'failed',
  fee?: bigint,
): Promise<void> {
  const id = randomUUID()
  await requestWithdrawal(ledger.database, {
    partition,
    accountId,
    id,
    amount: fromAtomic(amount),
    recipient,
    min: fromAtomic(1n),
  })
  await advanceTransfer(ledger.database, { partition, accountId, id, attempts: 0 }, { state, fee })
}
