import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { concat, encodePacked, type Hex, keccak256 } from 'viem'
import type { Connection, Database } from '../../src/db/database.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { makeDuePayments } from '../../src/ledger/payments.ts'
import { requestRefund } from '../../src/ledger/refunds.ts'
import { findWithdrawal } from '../../src/ledger/withdrawals.ts'
import { fromAtomic, zero } from '../../src/money/usdc.ts'
import { writeBundle } from '../../src/receipts/bundle.ts'
import { verifyBundle } from '../../src/receipts/verify-bundle.ts'
import type { Chain, ChainWithdrawal } from '../../src/settlement/chain.ts'
import { openReceiptRows } from '../../src/settlement/receipt-rows.ts'
import { type Recovery, recoverPayments } from '../../src/settlement/recover.ts'
import { nonceOf, saltOf, type TransferOperation } from '../../src/signer/nonce.ts'
import { receiptCrypto } from '../../src/signer/receipt-crypto.ts'
import { burnIntent } from '../../src/signer/signing-terms.ts'
import type { BurnIntent } from '../../src/signer/typed-data.ts'
import { partitions } from '../support/ledger.ts'
import {
  accountOf,
  type BenchAccount,
  dueAtOnce,
  ownedOf,
  pay,
  paymentsOf,
  settleAll,
  settlementSuite,
  settleOnce,
} from '../support/settlement-bench.ts'
import { keys, ownerAddress, terms } from '../support/signing.ts'
import { newWallet } from '../support/wallet-payments.ts'

// A ledger restored from an older copy, and a gateway that is ahead of it. What is paid out is in the chain's log: see test/e2e/recover.test.ts.

const bench = settlementSuite()
const gapMax = 2_048
const progress: (readonly [number, number, number])[] = []

/** @param chain asked for withdrawals alone, when it is known since when. */
function recover(database: Database = bench.database, chain?: Chain): Promise<Recovery> {
  const { gatewayClient, terms: payment, signingTerms } = bench.parts
  const copiedAt = chain === undefined ? undefined : 0n
  const ends = { gatewayClient, chain: chain ?? ({} as Chain), terms: payment, signingTerms, copiedAt, partitions }
  return recoverPayments({ database, ...ends, gapMax, onProgress: (...told) => void progress.push(told) })
}

/** A transfer that the gateway has made and the ledger does not have. */
function transferred(
  use: TransferOperation,
  { id: account, address }: BenchAccount,
  sequence: bigint,
  amount: bigint,
): void {
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

async function paymentsMade({ id }: BenchAccount): Promise<bigint> {
  const [row] = await bench.database.query<{ payments: bigint }>('select payments from accounts where id = $1', [id])
  return row!.payments
}

async function assertRecovered(account: BenchAccount, payments: bigint): Promise<void> {
  assert.equal(await ownedOf(bench, account), bench.gateway.balance(account.address))
  assert.equal(await paymentsMade(account), payments, 'no number that was used is given out again')
  assert.deepEqual(await findViolations(bench.database), [])
}

test('payments are found also behind one that explains by itself what is missing, and though they are more than there was', async () => {
  const account = await bench.openAccount(10_000n)
  transferred('authorization', account, 1n, 9_000n)
  transferred('return', account, 20n, 8_000n)
  transferred('authorization', account, 21n, 8_000n)
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [3, 9_000n, []])
  await assertRecovered(account, 21n)
  assert.equal((await recover()).payments, 0)
})

test('a payment is found behind any number of payments that failed, while something is missing', async () => {
  const account = await bench.openAccount(100_000n)
  transferred('authorization', account, 1n, 9_000n)
  transferred('authorization', account, 1_100n, 8_000n)
  progress.length = 0
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [2, 17_000n, []])
  await assertRecovered(account, 1_100n)
  assert.ok(
    progress.some(([, , nonces]) => nonces > 1_024),
    'a long search tells how far it is',
  )
  assert.equal((await recover()).payments, 0)
})

test('killed between any two of its writes, it finds the same when it is run again', async () => {
  for (const statement of ['insert into adjustments', 'insert into payments', 'update accounts a']) {
    const account = await bench.openAccount(10_000n)
    transferred('authorization', account, 1n, 2_000n)
    transferred('return', account, 3n, 500n)
    transferred('authorization', account, 4n, 1_000n)
    await assert.rejects(recover(dyingAt(statement)), /killed/, statement)
    const { payments, unexplained } = await recover()
    assert.deepEqual([payments, unexplained], [3, []], statement)
    await assertRecovered(account, 4n)
  }
})

// The copy has two charges that no payment covers yet. The payment that was made after it covers them and a forgotten one.
test('a payment covers what the copy has not paid, and one entry for what the copy has forgotten; nothing is paid twice', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await pay(bench, account, 1_000n, 300n)
  transferred('authorization', account, 1n, 1_500n)
  transferred('return', account, 2n, 400n)
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [2, 1_100n, []])
  assert.deepEqual(await paymentsOf(bench, account), [
    ['completed', 1n, 3n, 1_500n],
    ['completed', 4n, 4n, -400n],
  ])
  assert.equal((await accountOf(bench, account)).spendable, 8_900n)
  await assertRecovered(account, 2n)
  await pay(bench, account, 1_000n, 700n)
  await settleAll(bench)
  assert.equal((await paymentsOf(bench, account)).at(-1)![3], 700n)
  await assertRecovered(account, 3n)
})

// The copy has payment 1 as not submitted. It was, and payment 2 after it: the chain has both.
test('payments made after the copy are neither made again nor their numbers used again, also one that the copy has as open', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 200n)
  await makeDuePayments(bench.database, dueAtOnce, 0)
  assert.deepEqual(await paymentsOf(bench, account), [['submitted', 1n, 1n, 200n]])
  transferred('authorization', account, 1n, 200n)
  transferred('authorization', account, 2n, 700n)
  await settleOnce(bench)
  assert.deepEqual(await paymentsOf(bench, account), [['completed', 1n, 1n, 200n]])
  const { payments, value, unexplained } = await recover()
  assert.deepEqual([payments, value, unexplained], [1, 700n, []])
  await pay(bench, account, 1_000n, 300n)
  await settleAll(bench)
  assert.equal(bench.gateway.balance(account.address), 10_000n - 200n - 700n - 300n)
  const transfers = [...bench.gateway.transfers.values()].filter(({ from }) => from === account.address)
  assert.deepEqual(
    transfers.map(({ nonce, amount }) => [nonce, amount]),
    (
      [
        [1n, 200n],
        [2n, 700n],
        [3n, 300n],
      ] as const
    ).map(([number, amount]) => [nonceOf('authorization', account.id, 0, number), amount]),
  )
  await assertRecovered(account, 3n)
})

// Circle's contract was run once with our intents: it logs the hash of the encoded transfer, where ours logs the signed structure's.
test('a withdrawal that the copy knows is not booked again when Circle’s log shows it', async () => {
  const account = await bench.openAccount(10_000n)
  const id = randomUUID()
  await bench.funds.registerOwner(account, ownerAddress, true)
  await bench.funds.withdraw(account, id, fromAtomic(4_000n))
  await settleAll(bench)
  const burned = (salt: Hex, block: bigint): ChainWithdrawal => {
    const paying = { depositor: account.address, recipient: ownerAddress, value: 4_000n, maxFee: 0n, salt }
    const { spec } = burnIntent(bench.parts.signingTerms, paying)
    return {
      depositor: account.address,
      specHash: circleHashOf(spec),
      recipient: ownerAddress,
      value: 4_000n,
      fee: 0n,
      block,
      logIndex: 0,
      transactionHash: `0x${'ab'.repeat(32)}`,
    }
  }
  const chainWith = (...withdrawals: readonly ChainWithdrawal[]) =>
    ({ chainId: terms.chainId, finalBlock: async () => 10n, withdrawals: async () => withdrawals }) as unknown as Chain
  const known = burned(saltOf('withdrawal', id), 3n)
  assert.deepEqual((await recover(bench.database, chainWith(known))).withdrawals, [])
  assert.equal(await ownedOf(bench, account), 6_000n)
  bench.gateway.deposit(account.address, -4_000n)
  const forgotten = burned(saltOf('withdrawal', randomUUID()), 4n)
  const { withdrawals, unexplained } = await recover(bench.database, chainWith(known, forgotten))
  assert.deepEqual([withdrawals.map(({ amount }) => amount), unexplained], [[4_000n], []])
  assert.equal(await ownedOf(bench, account), 2_000n)
})

function circleHashOf(spec: BurnIntent['spec']): Hex {
  const { version, sourceDomain, destinationDomain, hookData } = spec
  const numbers = ['uint32', 'uint32', 'uint32'] as const
  const words = [
    spec.sourceContract,
    spec.destinationContract,
    spec.sourceToken,
    spec.destinationToken,
    spec.sourceDepositor,
    spec.destinationRecipient,
    spec.sourceSigner,
    spec.destinationCaller,
  ] as const
  const head = encodePacked(['bytes4', ...numbers], ['0xca85def7', version, sourceDomain, destinationDomain])
  const tail = encodePacked(
    ['uint256', 'bytes32', 'uint32', 'bytes'],
    [spec.value, spec.salt, (hookData.length - 2) / 2, hookData],
  )
  return keccak256(concat([head, ...words, tail]))
}

test('a gateway balance above the ledger’s is reported as well', async () => {
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

test('the receipts of recovered payments are one chain with those before and after them', async () => {
  const account = await bench.openAccount(10_000n)
  await pay(bench, account, 1_000n, 100n)
  await settleAll(bench)
  await pay(bench, account, 1_000n, 200n)
  transferred('authorization', account, 2n, 900n)
  transferred('return', account, 3n, 50n)
  await recover()
  await pay(bench, account, 1_000n, 300n)
  await settleAll(bench)
  const parts = { ...bench.parts, issuer: keys.ofRole('issuer').address }
  const { header, items } = (await openReceiptRows(parts, account))!
  const text = await Array.fromAsync(writeBundle(header, items, receiptCrypto.keccak256))
  const { checks, totals } = await verifyBundle(Readable.from(text.map((part) => Buffer.from(part))), {
    crypto: receiptCrypto,
  })
  assert.deepEqual(
    checks.filter(({ ok }) => !ok),
    [],
  )
  assert.deepEqual([totals.payments, totals.entries, totals.paid], [4n, 5n, 1_250n])
  await assertRecovered(account, 4n)
})

test('the remainder after recovered payments can be withdrawn immediately, whatever its size', async () => {
  const account = await bench.openAccount(400_000_000n)
  transferred('authorization', account, 1n, 150_000_000n)
  transferred('authorization', account, 2n, 50_000_000n)
  await recover()
  assert.equal((await accountOf(bench, account)).spendable, 200_000_000n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  const before = bench.gateway.paid.get(ownerAddress) ?? 0n
  for (const amount of [150_000_000n, 50_000_000n]) {
    const { id } = await bench.funds.withdraw(account, randomUUID(), fromAtomic(amount))
    await settleAll(bench)
    const { state, reason } = (await findWithdrawal(bench.database, account.partition, account.id, id))!
    assert.deepEqual([state, reason], ['confirmed', undefined])
  }
  assert.equal(bench.gateway.paid.get(ownerAddress), before + 200_000_000n)
  await assertRecovered(account, 2n)
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

/** A transfer between a wallet and the seller that the ledger does not have. */
function paidByWallet(from: string, to: string, amount: bigint, nonce: string): void {
  const id = randomUUID()
  bench.gateway.transfers.set(id, { id, from, to, amount, nonce, status: 'completed' } as never)
}

async function creditOf(accountId: string): Promise<readonly [credit: bigint, payments: bigint] | undefined> {
  const [row] = await bench.database.query<{ credit: bigint; payments: bigint }>(
    'select credit, payments from accounts where id = $1',
    [accountId],
  )
  return row && [row.credit, row.payments]
}

const nothing = { payments: 0, value: 0n, refunds: 0, refunded: 0n, unexplained: [], lostAccounts: new Map() }

test('what wallets paid over x402 after the copy is their credit, less what was paid back, and both once', async () => {
  const wallet = await newWallet(bench.database)
  const nonce = () => `0x${randomBytes(32).toString('hex')}`
  const refundNonce = (sequence: bigint) => nonceOf('refund', wallet.accountId, 0, sequence)
  paidByWallet(wallet.address, terms.seller, 5_000n, nonce())
  paidByWallet(wallet.address, terms.seller, 2_000n, nonce())
  paidByWallet(terms.seller, wallet.address, 3_000n, refundNonce(1n))
  // A page of payments of an account is newer.
  const account = await bench.openAccount(10_000_000n)
  for (let number = 1n; number <= 150n; number += 1n) transferred('authorization', account, number, 10n)
  const { wallets, unexplained } = await recover()
  assert.deepEqual(wallets, { ...nothing, payments: 2, value: 7_000n, refunds: 1, refunded: 3_000n })
  assert.deepEqual(unexplained, [])
  assert.deepEqual(await creditOf(wallet.accountId), [4_000n, 1n])
  assert.deepEqual(await findViolations(bench.database), [])

  assert.deepEqual((await recover()).wallets, nothing)
  assert.deepEqual(await creditOf(wallet.accountId), [4_000n, 1n])
  const next = await requestRefund(bench.database, {
    ...wallet,
    id: randomUUID(),
    amount: undefined,
    min: fromAtomic(1n),
    transferGas: zero,
  })
  assert.deepEqual(
    [next.amount, next.sequence],
    [fromAtomic(4_000n), 2n],
    'no sequence that was used is given out again',
  )
})

test('payments of an account that was opened after the copy are reported and stay revenue, and a counting wallet is credited', async () => {
  const account = randomUUID()
  const { address } = keys.ofAccount(account)
  paidByWallet(address, terms.seller, 5_000n, nonceOf('authorization', account, 0, 1n))
  paidByWallet(address, terms.seller, 2_000n, nonceOf('authorization', account, 0, 2n))
  paidByWallet(terms.seller, address, 500n, nonceOf('return', account, 0, 3n))
  const counting = await newWallet(bench.database)
  paidByWallet(counting.address, terms.seller, 70n, `0x${'7'.padStart(64, '0')}`)
  const lostAccounts = new Map([[address, 6_500n]])
  const { wallets, unexplained } = await recover()
  assert.deepEqual([wallets, unexplained], [{ ...nothing, payments: 1, value: 70n, lostAccounts }, []])
  assert.deepEqual(await creditOf(counting.accountId), [70n, 0n])
  assert.deepEqual((await recover()).wallets, { ...nothing, lostAccounts })
  assert.deepEqual(await findViolations(bench.database), [])
})

test('a seller’s payment to a wallet without credit stays unexplained, and nothing is recorded', async () => {
  const wallet = await newWallet(bench.database)
  paidByWallet(terms.seller, wallet.address, 3_000n, nonceOf('refund', wallet.accountId, 0, 1n))
  const { wallets, unexplained } = await recover()
  const missing = [{ account: wallet.accountId, address: wallet.address, missing: 3_000n }]
  assert.deepEqual([wallets.refunds, wallets.unexplained, unexplained], [0, missing, missing])
  assert.equal(await creditOf(wallet.accountId), undefined)
})
