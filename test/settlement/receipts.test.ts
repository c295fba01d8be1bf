import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { verifyCommand } from '../../src/commands/verify.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { makeDuePayments } from '../../src/ledger/payments.ts'
import type { RequestId } from '../../src/ledger/request-id.ts'
import { writeBundle } from '../../src/receipts/bundle.ts'
import type { ReceiptDocument } from '../../src/receipts/receipt.ts'
import { verifyBundle } from '../../src/receipts/verify-bundle.ts'
import { verifyReceipt } from '../../src/receipts/verify-receipt.ts'
import { findReceipt, receiptOfEntry } from '../../src/settlement/find-receipt.ts'
import { openReceiptRows } from '../../src/settlement/receipt-rows.ts'
import { submitPayments } from '../../src/settlement/submit.ts'
import { nonceOf } from '../../src/signer/nonce.ts'
import { receiptCrypto } from '../../src/signer/receipt-crypto.ts'
import { childEnvironment, pennyProgram } from '../support/child-environment.ts'
import { cancelledByClient, charge, hold, serveAgain, voided } from '../support/ledger.ts'
import { accountNow, ask, openWallet, startMoneyService, sums } from '../support/money-service.ts'
import { runCommand } from '../support/run-command.ts'
import { adjust, type BenchAccount, dueAtOnce, settleAll, settlementSuite } from '../support/settlement-bench.ts'
import { keys, terms as signingTerms } from '../support/signing.ts'
import { until } from '../support/until.ts'

const bench = settlementSuite()
const issuer = keys.ofRole('issuer').address

function parts(terms = bench.parts.terms) {
  return { database: bench.database, terms, issuer }
}

async function receiptOf(id: RequestId, terms = bench.parts.terms): Promise<ReceiptDocument> {
  return (await findReceipt(parts(terms), id))!
}

function entryOf({ partition, id: accountId, address }: BenchAccount, entry: bigint): Promise<ReceiptDocument> {
  return receiptOfEntry(parts(), { partition, accountId, address, entry })
}

async function served(account: BenchAccount, quote = 1_000n, charged = 400n): Promise<RequestId> {
  const placed = await hold(bench.holds, account, quote)
  await bench.holds.end(charge(placed, charged))
  return placed.requestId
}

async function isGood(document: unknown): Promise<boolean> {
  try {
    return (await verifyReceipt(document, receiptCrypto)).every(({ ok }) => ok)
  } catch {
    return false
  }
}

async function verifyAll({ partition, id: accountId }: BenchAccount) {
  const { header, items } = (await openReceiptRows(parts(), { partition, accountId }))!
  const text = await Array.fromAsync(writeBundle(header, items, receiptCrypto.keccak256))
  async function* chunks() {
    yield Buffer.from(text.join(''))
  }
  const { checks, totals } = await verifyBundle(chunks(), { crypto: receiptCrypto })
  const wrong = checks.filter(({ ok }) => !ok).map(({ name, detail }) => `${name}: ${detail}`)
  return { wrong, totals }
}

/** One entry of every kind: charged, paid from credit alone, voided, cancelled and refunded, its retry, given back, taken back. */
async function openEveryKind(): Promise<BenchAccount> {
  const account = await bench.openAccount(10_000n)
  await served(account)
  await served(account, 500n, 450n)
  await bench.holds.end(voided(await hold(bench.holds, account, 100n)))
  const attempt = await hold(bench.holds, account, 1_000n)
  await bench.holds.end(charge(attempt, 300n, cancelledByClient))
  assert.equal(await serveAgain(bench.database, bench.holds, account, [attempt.requestId, 300n]), 300n)
  await adjust(bench, account, 200n)
  await adjust(bench, account, -50n)
  return account
}

const kinds = [
  ['request', 'succeeded', '400'],
  ['request', 'succeeded', '450'],
  ['request', 'failed', '0'],
  ['request', 'cancelled', '300'],
  ['request', 'succeeded', '300'],
  ['refund', '', '-300'],
  ['adjustment', '', '-200'],
  ['adjustment', '', '50'],
] as const

test('every kind of entry has a receipt that says what it cost, unsigned before its payment and proved after it', async () => {
  const account = await openEveryKind()
  const read = () => Promise.all(kinds.map((_, index) => entryOf(account, BigInt(index + 1))))
  const before = await read()
  await settleAll(bench)
  const after = await read()
  for (const [index, [kind, status, amount]] of kinds.entries()) {
    const [early, document] = [before[index]!, after[index]!]
    assert.deepEqual([document.entry.kind, document.entry.status, document.entry.amount_atomic], [kind, status, amount])
    assert.deepEqual([early.entry, early.hash], [document.entry, document.hash], 'an entry never changes')
    assert.equal('payment' in early, false)
    assert.ok((await isGood(early)) && (await isGood(document)))
    const checks = await verifyReceipt(document, receiptCrypto)
    assert.deepEqual(
      checks.filter(({ pending }) => pending).map(({ name }) => name),
      ['inclusion'],
      'Circle names no batch',
    )
    assert.deepEqual(await entryOf(account, BigInt(index + 1)), document, 'it says the same whenever it is read')
  }
  assert.equal(after[1]!.entry.from_credit_atomic, '500', 'paid from credit alone')
})

test('the history of an account is one chain of roots without a gap, whatever failed on the way', async () => {
  const account = await openEveryKind()
  assert.deepEqual(await verifyAll(account), {
    wrong: [],
    totals: { entries: 8n, unpaid: 8n, payments: 0n, batched: 0n, waiting: 0n, paid: 0n },
  })
  await settleAll(bench)
  await served(account)
  await makeDuePayments(bench.database, dueAtOnce, 0)
  await submitPayments(bench.parts)
  bench.gateway.fail([...bench.gateway.transfers.values()].at(-1)!.id)
  await served(account)
  await settleAll(bench)
  await served(account, 1_000n, 7n)
  await makeDuePayments(bench.database, dueAtOnce, 0)
  assert.equal((await verifyAll(account)).totals.payments, 2n, 'one that is not signed yet is none')
  await submitPayments(bench.parts)
  await served(account, 1_000n, 3n)
  assert.deepEqual(await verifyAll(account), {
    wrong: [],
    totals: { entries: 12n, unpaid: 1n, payments: 3n, batched: 0n, waiting: 3n, paid: 1_000n + 800n + 7n },
  })
  await settleAll(bench)
})

test('receipts say the same after the epoch was raised, and each names the nonce that paid', async () => {
  const account = await bench.openAccount(10_000n)
  const first = await served(account)
  await settleAll(bench)
  const before = await receiptOf(first)
  assert.equal(before.payment!.nonce, nonceOf('authorization', account.id, 0, 1n))
  const raised = { ...bench.parts, terms: { ...bench.parts.terms, epoch: 7 } }
  const second = await served(account)
  await settleAll(Object.create(bench, { parts: { value: raised } }))
  for (const terms of [bench.parts.terms, raised.terms]) {
    assert.deepEqual(await receiptOf(first, terms), before)
    const after = await receiptOf(second, terms)
    assert.equal(after.payment!.nonce, nonceOf('authorization', account.id, 7, 2n))
    assert.equal(after.payment!.previous, before.payment!.root)
    assert.ok(await isGood(after))
  }
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
  return copy
}

const changes: readonly ((value: string | number) => unknown)[] = [
  (value) => (typeof value === 'number' ? value + 1 : `${value.slice(0, -1)}${value.endsWith('1') ? '2' : '1'}`),
  (value) => (typeof value === 'number' ? value - 1 : `${value}0`),
  () => undefined,
  () => null,
  () => ({}),
]

test('every changed field is found, without any network', async () => {
  const account = await openEveryKind()
  await settleAll(bench)
  for (const [index] of kinds.entries()) {
    const document = await entryOf(account, BigInt(index + 1))
    const ways = leaves(document)
    assert.ok(ways.length > 30, `${ways.length} fields`)
    for (const way of ways) {
      for (const change of changes) {
        assert.equal(await isGood(changed(document, way, change)), false, `${index + 1}: ${way.join('.')}`)
      }
    }
    assert.equal(await isGood({ ...document, entry: { ...document.entry, refund: '5' } }), false)
  }
  assert.equal(await isGood({}), false)
})

test('a receipt by another issuer is valid only for verifiers that trust it', async () => {
  const account = await bench.openAccount(10_000n)
  const id = await served(account)
  await settleAll(bench)
  const document = await receiptOf(id)
  assert.equal(await isGood({ ...document, payment: { ...document.payment, issuer: signingTerms.seller } }), false)
  assert.equal(await isGood({ ...document, payment: { ...document.payment, signature: '0x' } }), false)
})

async function penny(dataDir: string, databaseUrl: string, ...words: string[]) {
  const env = { ...childEnvironment, DATA_DIR: dataDir, DATABASE_URL: databaseUrl }
  const run = promisify(execFile)(process.execPath, [...pennyProgram(), ...words], { env })
  return run.then(
    ({ stdout }) => ({ code: 0, stdout }),
    ({ code, stdout, stderr }) => ({ code: code as number, stdout: `${stdout}${stderr}` }),
  )
}

test('penny receipt and penny receipts export print what penny verify proves up to the roots on the chain', async (t) => {
  const money = await startMoneyService(t)
  const account = await money.openAccount()
  const wallet = await openWallet(money, '1')
  await wallet.send(account.address, 1_000_000n)
  await until(async () => (await accountNow(money, account)).spendable === 1_000_000n)
  const answers = await Promise.all(Array.from({ length: 3 }, () => ask(money, account)))
  await until(async () => (await sums(money, account)).paid > 0n)
  answers.push(await ask(money, account))
  await until(async () => isPaid(await sums(money, account)))
  const ids = answers.map((answer) => answer.headers.get('x-router-request-id')!)
  const { rpcUrl, issuer: trusted, terms } = money.money
  const run = (...words: string[]) => penny(money.dataDir, money.databaseUrl, ...words)
  const file = join(money.dataDir, 'receipt.json')
  const proof = ['--rpc', rpcUrl, '--issuer', trusted]
  const verify = async (document: unknown, ...options: string[]) => {
    writeFileSync(file, JSON.stringify(document))
    return runCommand(verifyCommand, [file, ...options])
  }
  for (const id of ids) {
    const { code, stdout } = await run('receipt', id)
    assert.equal(code, 0, stdout)
    const verified = await verify(JSON.parse(stdout), ...proof)
    assert.equal(verified.code, 0, verified.text)
  }
  const document: ReceiptDocument = JSON.parse((await run('receipt', ids[0]!)).stdout)
  const payment = document.payment!
  const { batch, ...unbatched } = payment
  const pending = await verify({ ...document, payment: unbatched }, ...proof)
  assert.deepEqual([pending.code, /not on chain yet/.test(pending.text)], [1, true], pending.text)
  for (const bad of [
    { ...batch!, id: String(BigInt(batch!.id) + 1n) },
    { ...batch!, tx_hash: `0x${'0'.repeat(64)}` },
    { ...batch!, root: document.hash },
  ]) {
    const { code, text } = await verify({ ...document, payment: { ...payment, batch: bad } }, ...proof)
    assert.equal(code, 1)
    assert.match(text, /NOT valid/)
  }
  const foreign = await verify(document, '--issuer', terms.seller)
  assert.equal(foreign.code, 1)
  assert.match(foreign.text, /✗ issuer/)
  assert.equal((await verify({ ...document, object: 'invoice' })).code, 1)

  const bundle = join(money.dataDir, 'receipts.jsonl')
  const exported = await run('receipts', 'export', bundle, '--account', account.id)
  assert.equal(exported.code, 0, exported.stdout)
  assert.match(exported.stdout, /4 entries, \d payments, 0 entries unpaid/)
  const proved = await run('verify', bundle, ...proof)
  assert.equal(proved.code, 0, proved.stdout)
  const lines = readFileSync(bundle, 'utf8').split('\n')
  // The header, the first payment, its first entry, and the end.
  for (const index of [0, 1, 2, lines.length - 2]) {
    const forged = lines[index]!.replace(/[1-8](?="?[,}])/, (digit) => String(Number(digit) + 1))
    writeFileSync(file, lines.with(index, forged).join('\n'))
    const { code } = await runCommand(verifyCommand, [file, ...proof])
    assert.equal(code, 1, `line ${index + 1} was changed`)
  }
  const again = await run('receipts', 'export', bundle, '--account', account.id)
  assert.equal(again.code, 1)
  assert.match(again.stdout, /already exists/)
  const piped = await run('receipts', 'export', '-', '--account', account.id)
  assert.deepEqual([piped.code, piped.stdout], [0, lines.join('\n')])

  const download = (key?: string) =>
    fetch(`${new URL(money.baseUrl).origin}/api/receipts`, {
      headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    })
  const downloaded = await download(account.apiKey)
  assert.equal(downloaded.headers.get('content-type'), 'application/x-ndjson; charset=utf-8')
  assert.match(downloaded.headers.get('content-disposition')!, /attachment; filename="penny-receipts\.jsonl"/)
  assert.equal(await downloaded.text(), lines.join('\n'), 'a customer downloads what the operator exports')
  assert.equal((await download()).status, 401)
})

test('an account without an address has no receipts to download, and one with an address and no requests an empty bundle', async (t) => {
  const money = await startMoneyService(t)
  const { apiKey } = await money.openAccount()
  const { database } = money.service
  const download = async (key: string) => {
    const response = await fetch(`${new URL(money.baseUrl).origin}/api/receipts`, {
      headers: { authorization: `Bearer ${key}` },
    })
    return [response.status, await response.text()] as const
  }
  const [status, text] = await download(apiKey)
  assert.deepEqual([status, text.split('\n').length], [200, 3])
  assert.match(text, /"object":"end","payments":"0","entries":"0"\}\n$/)

  const poor = await createAccount(database, 'poor', 1)
  const { secret } = await createKey(database, { partition: poor.partition, accountId: poor.id, name: 'poor' })
  const [refused, error] = await download(secret)
  assert.deepEqual([refused, JSON.parse(error).error.code], [404, 'not_found'])
})

function isPaid({ charged, paid, open }: { charged: bigint; paid: bigint; open: bigint }): boolean {
  return open === 0n && charged === paid
}
