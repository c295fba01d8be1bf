import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import type { Connection, Database } from '../../src/db/database.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { findWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import type { Chain } from '../../src/settlement/chain.ts'
import { type Recovery, recoverPayments } from '../../src/settlement/recover.ts'
import { type NonceUse, nonceOf } from '../../src/signer/nonce.ts'
import { accountOf, type BenchAccount, settleAll, settlementSuite } from '../support/settlement-bench.ts'
import { ownerAddress, terms } from '../support/signing.ts'

// Books of an older copy, before a gateway that has gone on. What is paid out is in the chain's log: see test/e2e/recover.test.ts.

const bench = settlementSuite()
const gapMax = 2_048
const progress: (readonly [number, number, number])[] = []

function recover(database: Database = bench.database): Promise<Recovery> {
  const { rail, terms: payment, signingTerms } = bench.parts
  // Asked for withdrawals alone, when it is known since when.
  const chain = {} as Chain
  const ends = { rail, chain, terms: payment, signingTerms, copiedAt: undefined }
  return recoverPayments({ database, ...ends, gapMax, onProgress: (...told) => void progress.push(told) })
}

/** A transfer that the gateway has made and the books have forgotten. */
function transferred(use: NonceUse, { id: account, address }: BenchAccount, sequence: bigint, amount: bigint): void {
  const [from, to] = use === 'return' ? [terms.seller, address] : [address, terms.seller]
  const id = randomUUID()
  bench.gateway.transfers.set(id, {
    id,
    from,
    to,
    amount,
    nonce: nonceOf(use, account, 0, sequence),
    status: 'completed',
  })
  bench.gateway.deposit(from, -amount)
  bench.gateway.deposit(to, amount)
}

async function nonceNext({ id }: BenchAccount): Promise<bigint> {
  const [row] = await bench.database.query<{ nonce_next: bigint }>('select nonce_next from accounts where id = $1', [
    id,
  ])
  return row!.nonce_next
}

async function assertRecovered(account: BenchAccount, nonce: bigint): Promise<void> {
  assert.equal((await accountOf(bench, account)).gateway, bench.gateway.balance(account.address))
  assert.equal(await nonceNext(account), nonce, 'no nonce that was used is given out again')
  assert.deepEqual(await findViolations(bench.database), [])
}

test('payments are found also behind one that explains by itself what is missing, and though they are more than there was', async () => {
  const account = await bench.openAccount(10_000n)
  transferred('authorization', account, 0n, 9_000n)
  transferred('return', account, 20n, 8_000n)
  transferred('authorization', account, 21n, 8_000n)
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [2, 17_000n, []])
  await assertRecovered(account, 22n)
  assert.equal((await recover()).payments, 0)
})

// The model was away for an hour, and a client that asked again and again used up a nonce each time.
test('a payment is found behind any number of requests that came to nothing, while something is missing', async () => {
  const account = await bench.openAccount(100_000n)
  transferred('authorization', account, 0n, 9_000n)
  transferred('authorization', account, 1_100n, 8_000n)
  progress.length = 0
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [2, 17_000n, []])
  await assertRecovered(account, 1_101n)
  assert.ok(
    progress.some(([, , nonces]) => nonces > 1_024),
    'a long search tells how far it is',
  )
  assert.equal((await recover()).payments, 0)
})

test('killed between any two of its writes, it finds the same when it is run again', async () => {
  for (const statement of [
    'insert into settlements',
    'insert into withdrawals',
    'set nonce_next = greatest(nonce_next',
  ]) {
    const account = await bench.openAccount(10_000n)
    transferred('return', account, 1n, 500n)
    transferred('authorization', account, 3n, 2_000n)
    transferred('authorization', account, 4n, 1_000n)
    await assert.rejects(recover(dyingAt(statement)), /killed/, statement)
    const { payments, unexplained } = await recover()
    assert.deepEqual([payments, unexplained], [2, []], statement)
    await assertRecovered(account, 5n)
  }
})

test('more at the gateway than the books know of is told as well', async () => {
  const account = await bench.openAccount(10_000n)
  bench.gateway.deposit(account.address, 7n)
  const { unexplained } = await recover()
  assert.deepEqual(unexplained, [{ account: account.id, address: account.address, missing: -7n }])
  bench.gateway.deposit(account.address, -8n)
  assert.deepEqual(
    (await recover()).unexplained.map(({ missing }) => missing),
    [1n],
  )
  bench.gateway.deposit(account.address, 1n)
})

// Whoever gets back what was paid after the copy has far more credit than what requests leave of their quotes.
test('what came back as credit can be withdrawn at once, however much it is', async () => {
  const account = await bench.openAccount(400_000_000n)
  transferred('authorization', account, 0n, 150_000_000n)
  transferred('authorization', account, 1n, 150_000_000n)
  await recover()
  assert.equal((await accountOf(bench, account)).credit, 300_000_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  for (const amount of [250_000_000n, 150_000_000n]) {
    const { id } = await bench.funds.withdraw(account, randomUUID(), fromAtomic(amount))
    await settleAll(bench)
    const { state, reason } = (await findWithdrawal(bench.database, account.partition, account.id, id))!
    assert.deepEqual([state, reason], ['confirmed', undefined])
  }
  assert.equal(bench.gateway.paid.get(ownerAddress), before + 400_000_000n)
  await assertRecovered(account, 4n)
})

/** A database whose client dies before the first statement with these words. */
function dyingAt(words: string): Database {
  const { database } = bench
  const dying = (connection: Connection): Connection => ({
    execute: (script) => connection.execute(script),
    queryPrepared: (name, text, values) => connection.queryPrepared(name, text, values),
    async query(text, values) {
      if (text.includes(words)) throw new Error('killed')
      return connection.query(text, values)
    },
  })
  return {
    ...dying(database),
    transaction: (work, options) => database.transaction((connection) => work(dying(connection)), options),
    close: () => database.close(),
  }
}
