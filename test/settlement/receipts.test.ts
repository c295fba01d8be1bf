import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { RequestId } from '../../src/ledger/request-id.ts'
import { findReceipt } from '../../src/settlement/find-receipt.ts'
import { issueReceipts } from '../../src/settlement/issue-receipts.ts'
import { noHash, type ReceiptDocument } from '../../src/settlement/receipt.ts'
import { verifyReceipt } from '../../src/settlement/verify-receipt.ts'
import { nonceOf } from '../../src/signer/nonce.ts'
import { cancelledByClient, charge, hold, serveAgain } from '../support/ledger.ts'
import { accountNow, ask, openWallet, startMoneyService, sums } from '../support/money-service.ts'
import { type BenchAccount, settleAll, settlementSuite } from '../support/settlement-bench.ts'
import { keys, terms as signingTerms } from '../support/signing.ts'
import { until } from '../support/until.ts'

const bench = settlementSuite()
const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))

async function receiptOf(id: RequestId, terms = bench.parts.terms): Promise<ReceiptDocument> {
  const { signer } = bench.parts
  const issuer = keys.ofRole('issuer').address
  return (await findReceipt({ database: bench.database, signer, terms, issuer }, id))!
}

async function served(account: BenchAccount, quote = 1_000n, charged = 400n): Promise<RequestId> {
  const placed = await hold(bench.holds, account, quote)
  await bench.holds.end(charge(placed, charged))
  return placed.requestId
}

async function isGood(document: ReceiptDocument): Promise<boolean> {
  try {
    return (await verifyReceipt(document)).every(({ ok }) => ok)
  } catch {
    return false
  }
}

test('the receipts of an account are one chain without a gap, however many processes write them', async () => {
  const accounts = await Promise.all(Array.from({ length: 3 }, () => bench.openAccount(100_000n)))
  const ids = new Map(accounts.map((account) => [account, [] as RequestId[]]))
  let isServing = true
  // A writer that loses a race for a number writes nothing and tries again.
  const writers = Array.from({ length: 3 }, async () => {
    while (isServing) await issueReceipts(bench.database, bench.parts.terms).catch(() => 0)
  })
  for (let round = 0; round < 5; round += 1) {
    await Promise.all(
      accounts.flatMap((account) =>
        Array.from({ length: 4 }, async () => void ids.get(account)!.push(await served(account))),
      ),
    )
  }
  isServing = false
  await Promise.all(writers)
  await settleAll(bench)
  for (const account of accounts) {
    const documents = await Promise.all(ids.get(account)!.map((id) => receiptOf(id)))
    documents.sort((left, right) => Number(BigInt(left.receipt.number) - BigInt(right.receipt.number)))
    let previous: string = noHash
    for (const [index, document] of documents.entries()) {
      assert.equal(document.receipt.number, String(index + 1))
      assert.equal(document.receipt.previous, previous)
      assert.ok(await isGood(document))
      previous = document.hash
    }
  }
})

test('a request whose charge was taken back gets a second receipt, which says that it costs nothing', async () => {
  const account = await bench.openAccount(10_000n)
  const attempt = await hold(bench.holds, account, 1_000n)
  const { requestId: id } = attempt
  await bench.holds.end(charge(attempt, 400n, cancelledByClient))
  await settleAll(bench)
  await issueReceipts(bench.database, bench.parts.terms)
  const first = await receiptOf(id)
  await serveAgain(bench.database, bench.holds, account, [id, 400n])
  await issueReceipts(bench.database, bench.parts.terms)
  const second = await receiptOf(id)
  assert.deepEqual([first.receipt.status, first.receipt.charged], ['cancelled', '400'])
  assert.deepEqual([second.receipt.status, second.receipt.charged], ['superseded', '0'])
  // Number 2 is the retry's.
  assert.deepEqual([first.receipt.number, second.receipt.number], ['1', '3'])
  assert.ok(await isGood(second))
})

test('a receipt says the same whenever it is read, and is signed once', async () => {
  const account = await bench.openAccount(10_000n)
  const id = await served(account)
  await issueReceipts(bench.database, bench.parts.terms)
  const before = await receiptOf(id)
  await settleAll(bench)
  const after = await receiptOf(id)
  assert.deepEqual(after, before)
})

test('receipts of every epoch say the same after the epoch was raised, and each names the nonce that paid', async () => {
  const account = await bench.openAccount(10_000n)
  const first = await served(account)
  await settleAll(bench)
  const before = await receiptOf(first)
  const raised = { ...bench.parts.terms, epoch: 7 }
  const second = await served(account)
  await issueReceipts(bench.database, raised)
  // One that was written before epochs were kept.
  await bench.database.query('update settlements set epoch = null where id = $1', [first])
  for (const terms of [bench.parts.terms, raised]) {
    assert.deepEqual(await receiptOf(first, terms), before)
    const after = await receiptOf(second, terms)
    assert.equal(after.receipt.nonce, nonceOf('authorization', account.id, 7, 1n))
    assert.equal(after.receipt.previous, before.hash)
    assert.ok(await isGood(after))
  }
  // The other tests pay in the bench's own epoch.
  await bench.database.query('update settlements set epoch = 0, receipt_number = null where id = $1', [second])
})

/** Every value in a document, by the way to it. */
function leaves(value: unknown, way: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [way]
  return Object.entries(value).flatMap(([name, part]) => leaves(part, [...way, name]))
}

function changed(document: ReceiptDocument, way: readonly string[], change: (value: never) => unknown) {
  const copy = structuredClone(document) as unknown as Record<string, unknown>
  const parent = way.slice(0, -1).reduce((part, name) => part[name] as Record<string, unknown>, copy)
  const name = way.at(-1)!
  parent[name] = change(parent[name] as never)
  return copy as unknown as ReceiptDocument
}

const changes: readonly ((value: string | number) => unknown)[] = [
  (value) => (typeof value === 'number' ? value + 1 : `${value.slice(0, -1)}${value.endsWith('1') ? '2' : '1'}`),
  (value) => (typeof value === 'number' ? value - 1 : `${value}0`),
  () => undefined,
  () => null,
  () => ({}),
]

test('every single field that somebody changed is found, without any network', async () => {
  const account = await bench.openAccount(10_000n)
  const id = await served(account)
  await issueReceipts(bench.database, bench.parts.terms)
  const document = await receiptOf(id)
  const ways = leaves(document)
  assert.equal(ways.length, 23)
  for (const way of ways) {
    for (const change of changes) {
      assert.equal(await isGood(changed(document, way, change)), false, way.join('.'))
    }
  }
  assert.equal(await isGood({ ...document, receipt: { ...document.receipt, refund: '5' } as never }), false)
  assert.equal(await isGood({} as ReceiptDocument), false)
})

test('a receipt that somebody else signed is good only for who trusts him', async () => {
  const account = await bench.openAccount(10_000n)
  const id = await served(account)
  await issueReceipts(bench.database, bench.parts.terms)
  const document = await receiptOf(id)
  assert.equal(await isGood({ ...document, issuer: signingTerms.seller }), false)
  assert.equal(await isGood({ ...document, signature: '0x' }), false)
})

async function penny(dataDir: string, databaseUrl: string, ...words: string[]) {
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir, DATABASE_URL: databaseUrl }
  const run = promisify(execFile)(process.execPath, [main, ...words], { env })
  return run.then(
    ({ stdout }) => ({ code: 0, stdout }),
    ({ code, stdout, stderr }) => ({ code: code as number, stdout: `${stdout}${stderr}` }),
  )
}

test('penny receipt prints it, penny verify proves it up to the root on the chain, and finds what was changed there', async (t) => {
  const money = await startMoneyService(t)
  const account = await money.openAccount()
  const wallet = await openWallet(money, '1')
  await wallet.send(account.address, 1_000_000n)
  await until(async () => (await accountNow(money, account)).spendable === 1_000_000n)
  const answers = await Promise.all(Array.from({ length: 3 }, () => ask(money, account)))
  answers.push(await ask(money, account))
  await until(async () => (await sums(money, account)).open === 0n)
  const ids = answers.map((answer) => answer.headers.get('x-router-request-id')!)
  const { rpcUrl, issuer, terms } = money.money
  const file = join(money.dataDir, 'receipt.json')
  const proof = ['--rpc', rpcUrl, '--issuer', issuer]
  const verify = async (document: ReceiptDocument, ...options: string[]) => {
    writeFileSync(file, JSON.stringify(document))
    return penny(money.dataDir, money.databaseUrl, 'verify', file, ...options)
  }

  // The first of several at once authorizes; later ones may be paid by its credit and be in no batch.
  const documents: ReceiptDocument[] = []
  for (const id of ids) {
    const { code, stdout } = await penny(money.dataDir, money.databaseUrl, 'receipt', id)
    assert.equal(code, 0, stdout)
    documents.push(JSON.parse(stdout))
  }
  const document = documents.find(({ batch }) => batch !== undefined)!
  assert.match((await verify(document, ...proof)).stdout, /The root stands in block \d+[\s\S]*The receipt is good/)
  const { batch, ...unsettled } = document
  const pending = await verify(unsettled, ...proof)
  assert.deepEqual([pending.code, /genuine, but not settled yet/.test(pending.stdout)], [1, true])
  // Credit pays for what follows: there is nothing that could be on the chain.
  const paidFromCredit = documents.find(({ receipt }) => receipt.authorized === '0')!
  const fromCredit = await verify(paidFromCredit, ...proof)
  assert.equal(fromCredit.code, 0, fromCredit.stdout)
  assert.match(fromCredit.stdout, /✓ chain {6}Paid from credit: nothing to settle\.[\s\S]*The receipt is good/)
  for (const bad of [
    { ...document, batch: { ...batch!, id: String(BigInt(batch!.id) + 1n) } },
    { ...document, batch: { ...batch!, tx_hash: `0x${'0'.repeat(64)}` as const } },
    { ...document, batch: { ...batch!, root: document.hash } },
  ]) {
    const { code, stdout } = await verify(bad, ...proof)
    assert.equal(code, 1)
    assert.match(stdout, /The receipt is NOT good/)
  }
  const foreign = await verify(document, '--issuer', terms.seller)
  assert.equal(foreign.code, 1)
  assert.match(foreign.stdout, /✗ issuer/)
  assert.equal((await verify({ ...document, object: 'invoice' } as never)).code, 1)
})
