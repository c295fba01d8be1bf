import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { assertBooksBalance } from '../../test/support/audit.ts'
import { earlier } from '../../test/support/earlier.ts'
import { hold, openPayer } from '../../test/support/ledger.ts'
import { pay, settlementSuite } from '../../test/support/settlement-bench.ts'
import { createCustodian, keys, ownerAddress, terms } from '../../test/support/signing.ts'
import { findViolations } from '../ledger/audit.ts'
import { deleteOldSnapshots, findLatestSnapshot, storeSnapshot, wantSnapshot } from '../ledger/liabilities.ts'
import { fromAtomic } from '../money/usdc.ts'
import { verifyLiabilityProof, writeLiabilityProof } from '../receipts/liability-proof.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { askCustodian, createSigner } from '../signer/signer.ts'
import { findPublishedSnapshot, proveLiability, takeDueSnapshot, takeSnapshot } from './liabilities.ts'
import { publishTerms } from './published-terms.ts'
import { recordSolvency } from './solvency.ts'

const bench = settlementSuite()
const issuer = keys.ofRole('issuer').address
const amounts = { owed_atomic: '9', on_chain_atomic: '1000', unsettled_atomic: '0', seller_short_atomic: '0' }
const report = { block: '7', accounts: 1, ...amounts, seller_atomic: '900', owed_back_atomic: '30', short: [] }

/** Each is a settlement process of its own, with a signer that has signed nothing yet. */
function openParts(t: TestContext, signs = (signature: `0x${string}`) => signature) {
  const signer = createSigner({ ask: askCustodian(createCustodian(t)), onFault: assert.ifError })
  return {
    database: bench.database,
    signer: {
      signLiabilities: async (...args: Parameters<typeof signer.signLiabilities>) =>
        signs(await signer.signLiabilities(...args)),
    },
    signingTerms: terms,
    issuer,
  }
}

/** As if the stored snapshots had been taken that long ago. */
async function passTime(minutes: number): Promise<void> {
  await bench.database.execute(`
    alter table liability_leaves drop constraint liability_leaves_number_fkey;
    update liability_leaves set number = number - ${minutes};
    update liability_snapshots set number = number - ${minutes}, ${earlier('taken_at', `interval '${minutes} minutes'`)};
    alter table liability_leaves add constraint liability_leaves_number_fkey foreign key (number) references liability_snapshots on delete cascade`)
}

async function rowCounts(): Promise<{ readonly snapshots: number; readonly leaves: number }> {
  const [row] = await bench.database.query<{ snapshots: number; leaves: number }>(
    `select (select count(*) from liability_snapshots)::int as snapshots, (select count(distinct number) from liability_leaves)::int as leaves`,
  )
  return row!
}

test('before the first deposit there is no snapshot, and then every account proves what it is owed', async (t) => {
  const { database } = bench
  await publishTerms(database, { terms, issuer })
  const parts = openParts(t)
  assert.equal(await takeDueSnapshot(parts), false, 'nothing was compared with the chain')
  assert.equal(await wantSnapshot(database), false)
  await recordSolvency(database, report)
  assert.equal(await takeDueSnapshot(parts), false, 'nothing is owed')
  const nobody = await openPayer(database, 0n)
  await assert.rejects(proveLiability(database, nobody), { code: 'not_found' })
  assert.equal(await findPublishedSnapshot(database), undefined)

  // Held money and a withdrawal that is not paid yet are owed. What was charged is not.
  const account = await bench.openAccount(100_000n)
  await hold(bench.holds, account, 5_000n)
  await pay(bench, account, 2_000n, 1_500n)
  await bench.funds.registerOwner(account, ownerAddress, true)
  await bench.funds.withdraw(account, randomUUID(), fromAtomic(30_000n))
  const others = await Promise.all([1n, 2n, 3n, 4n].map((amount) => openPayer(database, amount)))

  assert.equal(await takeDueSnapshot(parts), true)
  const { leaf, snapshot, path } = await proveLiability(database, account)
  assert.equal(leaf!.amount, 98_500n)
  assert.deepEqual([snapshot.sum, snapshot.leaves, path.length], [98_510n, 5n, 3])
  // Of the seller's 900, only the 30 that it owes back are theirs.
  assert.deepEqual([snapshot.block, snapshot.onChain], [7n, 1_030n])
  for (const payer of [account, ...others]) {
    const proof = await proveLiability(database, payer)
    assert.equal(proof.leaf!.account, payer.accountId)
    const checks = await verifyLiabilityProof(writeLiabilityProof(proof), receiptCrypto)
    assert.ok(
      checks.every(({ ok }) => ok),
      JSON.stringify(checks),
    )
  }
  assert.deepEqual(await findPublishedSnapshot(database), snapshot)
  assert.equal((await proveLiability(database, nobody)).leaf, undefined, 'nothing is owed to this account')
  await assertBooksBalance(database)
})

test('a snapshot is taken once an hour, or when an operator wants one, and names the one before', async (t) => {
  const { database } = bench
  // Into the future, because the hour or the minute may end during this test.
  await passTime(-2)
  assert.equal(await takeDueSnapshot(openParts(t)), false, 'this hour has one')
  await wantSnapshot(database)
  assert.equal(await takeDueSnapshot(openParts(t)), false, 'this minute has one')
  await passTime(4)
  assert.equal(await takeDueSnapshot(openParts(t)), true, 'an operator wants one')
  await passTime(61)
  const before = (await findLatestSnapshot(database))!
  await database.query(`update solvency set ${earlier('checked_at', "interval '2 minutes'")}`)
  assert.equal(await takeDueSnapshot(openParts(t)), false, 'the comparison with the chain is old')
  await recordSolvency(database, report)
  assert.equal(await takeDueSnapshot(openParts(t)), true)
  const latest = (await findLatestSnapshot(database))!
  assert.deepEqual(latest.previous, before.digest)
})

test('a snapshot with a signature of another key is not stored', async (t) => {
  await passTime(120)
  const rows = await rowCounts()
  const spoiled = openParts(t, (signature) => `${signature.slice(0, 40)}00${signature.slice(42)}` as `0x${string}`)
  await assert.rejects(takeSnapshot(spoiled, report), /is not one of 0x/)
  assert.deepEqual(await rowCounts(), rows)
})

test('the tree is not signed when the balances of the ledger are not what its running totals say', async (t) => {
  const { database } = bench
  const rows = await rowCounts()
  const payer = await openPayer(database, 50n)
  await database.query('update accounts set gateway = gateway - 7 where partition = $1 and id = $2', [
    payer.partition,
    payer.accountId,
  ])
  await assert.rejects(takeSnapshot(openParts(t), report), /are owed \d+, but their running totals say \d+/)
  await database.query('update accounts set gateway = gateway + 7 where partition = $1 and id = $2', [
    payer.partition,
    payer.accountId,
  ])
  assert.deepEqual(await rowCounts(), rows)
})

test('leaves are kept for two days, those of the first snapshot of a day for 400 days', async () => {
  const { database } = bench
  await database.query('delete from liability_snapshots')
  const day = 1440n
  const today = BigInt(Math.floor(Date.now() / 60_000)) / day
  const bytes = (size: number) => randomBytes(size)
  const numbers = [today - 401n, today - 399n, today - 3n, today - 1n].flatMap((start) => [
    start * day,
    start * day + 60n,
  ])
  for (const number of numbers) {
    const part = { firstSalt: bytes(32), hash: bytes(32), sum: 1n, accounts: [randomUUID()], amounts: [1n] }
    const sums = { sum: 1n, leaves: 1n, booked: 1n, block: 1n, onChain: 1n }
    const hashes = {
      root: bytes(32),
      previous: bytes(32),
      digest: bytes(32),
      saltKey: bytes(32),
      signature: bytes(65),
    }
    await storeSnapshot(database, { number, takenAt: new Date(Number(number) * 60_000), ...sums, ...hashes }, [part])
  }
  await deleteOldSnapshots(database)
  const kept = await database.query<{ number: bigint; has_leaves: boolean }>(
    `select s.number, exists (select from liability_leaves l where l.number = s.number) as has_leaves
       from liability_snapshots s order by s.number`,
  )
  assert.deepEqual(
    kept.map(({ number }) => number),
    numbers.slice(2),
  )
  assert.deepEqual(
    kept.map(({ has_leaves }) => has_leaves),
    [true, false, true, false, true, true],
  )
  const payer = await openPayer(database, 1n)
  await assert.rejects(proveLiability(database, payer, String(numbers[3])), /no longer kept/)
  await assert.rejects(proveLiability(database, payer, '1'), /does not exist/)
  await database.query('delete from liability_snapshots')
})

test('the audit finds a leaf that was changed in the latest snapshot', async (t) => {
  const { database } = bench
  assert.equal(await takeSnapshot(openParts(t), report), true)
  assert.deepEqual(await findViolations(database), [])
  await database.query('update liability_leaves set amounts[1] = amounts[1] + 1')
  const found = await findViolations(database)
  assert.deepEqual(
    found.map(({ invariant }) => invariant),
    ['I13'],
  )
  await database.query('update liability_leaves set amounts[1] = amounts[1] - 1, sum = sum + 1')
  assert.equal((await findViolations(database)).length, 1)
  await database.query('delete from liability_snapshots')
})
