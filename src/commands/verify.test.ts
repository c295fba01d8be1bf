import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  account,
  deposit,
  ended,
  openBench,
  paymentBody,
  seller,
  settle,
  transferOf,
  untilBalance,
} from '../../test/support/gateway.ts'
import { preparePenny } from '../../test/support/penny-command.ts'
import {
  documentOf,
  domain,
  everyKind,
  historyOf,
  issuer,
  pay,
  payer,
  settleInBatch,
} from '../../test/support/receipts.ts'
import { runCommand } from '../../test/support/run-command.ts'
import { chainId } from '../../test/support/sandbox-chain.ts'
import { format } from '../money/usdc.ts'
import { writeBundle } from '../receipts/bundle.ts'
import type { Hex } from '../receipts/hex.ts'
import type { SignedPayment } from '../receipts/payment.ts'
import { keccak256 } from '../signer/keccak.ts'
import { verifyCommand } from './verify.ts'

function openVerifier(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'penny-verify-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'receipt.json')
  return async (content: unknown, ...options: string[]) => {
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content, null, 2))
    return runCommand(verifyCommand, [file, ...options])
  }
}

const entries = everyKind()
const payment = settleInBatch(pay(entries))
const settled = documentOf(entries[0]!, { payment, entries })

test('a receipt is verified, and a changed field is named', async (t) => {
  const verify = openVerifier(t)
  const good = await verify(settled)
  assert.equal(good.code, 0, good.text)
  assert.match(
    good.text,
    /✓ hash[\s\S]*✓ signature[\s\S]*✓ amounts[\s\S]*✓ payment[\s\S]*✓ inclusion[\s\S]*The receipt is valid/,
  )
  assert.match(good.text, /Not checked: the issuer \(--issuer\) and the chain \(--rpc\)/)
  const forged = await verify({ ...settled, entry: { ...settled.entry, amount_atomic: '1' } })
  assert.equal(forged.code, 1)
  assert.match(forged.text, /✗ hash[\s\S]*✗ payment[\s\S]*The receipt is NOT valid/)
  assert.deepEqual(Object.keys(JSON.parse((await verify(settled, '--json')).text)), ['ok', 'checks'])
})

// Anyone can write an unsigned receipt: a script must not accept one as verified.
test('an unsigned receipt is neither reported as invalid nor counted as proved', async (t) => {
  const verify = openVerifier(t)
  const { code, text } = await verify(documentOf(entries[0]!))
  assert.deepEqual([code, /… signature[\s\S]*receipt is not signed yet/.test(text)], [1, true], text)
})

test('the issuer is compared with the one you trust, in any case of letters', async (t) => {
  const verify = openVerifier(t)
  const upper = `0x${issuer.slice(2).toUpperCase()}`
  assert.equal((await verify(settled, '--issuer', upper)).code, 0)
  const foreign = await verify(settled, '--issuer', payer)
  assert.deepEqual([foreign.code, /✗ issuer/.test(foreign.text)], [1, true])
  assert.equal((await verify(settled, '--issuer', 'penny')).code, 2)
  assert.equal((await verify(settled, '--rpc', 'nonsense')).code, 2)
})

test('an invalid receipt file is refused in one line', async (t) => {
  const verify = openVerifier(t)
  const files = [
    '',
    'nonsense',
    'null',
    '{"version":1,"object":"receipt"}',
    '{"object":"receipts"}',
    ' '.repeat(2_000_000),
  ]
  for (const content of files) {
    const { code, text } = await verify(content)
    assert.equal(code, 1)
    assert.match(text, /^penny: [^\n]+\n$/)
  }
  // Once as a user runs it.
  const penny = preparePenny()
  atEnd(t, async () => penny.remove())
  assert.match((await penny.run(['verify', 'missing.json'])).stderr, /^penny: missing\.json cannot be read: [^\n]+\n$/)
  assert.match((await runCommand(verifyCommand, [penny.folder])).text, /^penny: [^\n]+ cannot be read: [^\n]+\n$/)
})

test('the bundle of an account is verified, and a missing payment is found', async (t) => {
  const verify = openVerifier(t)
  const { header, items } = historyOf(everyKind(), [3, 2])
  const bundle = (await Array.fromAsync(writeBundle(header, items, keccak256))).join('')
  const good = await verify(bundle, '--issuer', issuer)
  assert.equal(good.code, 0, good.text)
  assert.match(good.text, new RegExp(`The bundle is valid: 7 entries of ${payer}, 2 payments, 2 entries unpaid`))
  const lines = bundle.split('\n')
  const shortened = await verify(lines.toSpliced(1, 4).join('\n'))
  assert.equal(shortened.code, 1)
  assert.match(shortened.text, /✗ payments[\s\S]*a payment is missing[\s\S]*The bundle is NOT valid/)
  assert.equal((await verify(bundle, '--issuer', payer)).code, 1)
  const cut = await verify(bundle.slice(0, -20))
  assert.deepEqual([cut.code, /cut off/.test(cut.text)], [1, true])
})

// Entry → payment → batch → event: the whole way, over our gateway and the sandbox's chain.
test('a receipt is proved up to the event on the chain, and a batch that is not there is found', async (t) => {
  const bench = await openBench(t)
  const gateway = await bench.start()
  const customer = account('customer')
  const place = { chainId: BigInt(chainId), gatewayWallet: bench.wallet.toLowerCase() as Hex }
  const covered = everyKind().map((entry) => ({ ...entry, payer: customer.address.toLowerCase() as Hex }))
  const made = pay(covered, undefined, { domain: place })
  await deposit(bench, customer, 1_000_000n)
  await untilBalance(gateway.url, customer.address, '1')
  const { value, nonce, root: receiptHash } = made
  const id = await settle(gateway.url, await paymentBody(bench.wallet, customer, { value, nonce, receiptHash }))
  // Others of the same batch or not: the proof tells.
  await ended(gateway.url, id)
  const { batchId, transactionHash: txHash, receipt } = await transferOf(gateway.url, id)
  const onChain: SignedPayment = {
    ...made,
    batch: { id: BigInt(batchId), txHash, root: receipt.root, proof: receipt.proof },
  }
  const document = documentOf(covered[2]!, { payment: onChain, entries: covered }, place)
  const verify = openVerifier(t)
  const options = ['--rpc', bench.chain.url, '--issuer', issuer]
  const good = await verify(document, ...options)
  assert.equal(good.code, 0, good.text)
  assert.match(good.text, /✓ chain +Transaction 0x\w+ settled payment 1 in batch \d+\.[\s\S]*The receipt is valid\.\n$/)

  const { batch } = document.payment!
  const changes = [{ id: String(BigInt(batchId) + 1n) }, { tx_hash: `0x${'0'.repeat(64)}` }]
  for (const change of changes) {
    const { code, text } = await verify(
      { ...document, payment: { ...document.payment, batch: { ...batch, ...change } } },
      ...options,
    )
    assert.deepEqual([code, /✗ chain[\s\S]*The receipt is NOT valid/.test(text)], [1, true], text)
  }
  // Anyone who pays the seller can put a root into a batch, for example that of a payment that failed.
  const failed = pay(covered, undefined, { domain: place, nonce: `0x${'7b'.repeat(32)}` })
  const stranger = account('stranger')
  await deposit(bench, stranger, 1_000_000n)
  await untilBalance(gateway.url, stranger.address, '1')
  const foreignId = await settle(gateway.url, await paymentBody(bench.wallet, stranger, { receiptHash: failed.root }))
  await ended(gateway.url, foreignId)
  const {
    batchId: foreignBatch,
    transactionHash: foreignHash,
    receipt: proof,
  } = await transferOf(gateway.url, foreignId)
  const smuggled = { ...failed, batch: { id: BigInt(foreignBatch), txHash: foreignHash, ...proof } }
  const forgery = await verify(documentOf(covered[2]!, { payment: smuggled, entries: covered }, place), ...options)
  assert.deepEqual([forgery.code, /✓ inclusion/.test(forgery.text)], [1, true], forgery.text)
  assert.match(forgery.text, /✗ chain +Batch \d+ does not settle payment 1\./)
  // A payment of the service to the account.
  const given = covered.slice(4, 5)
  const back = pay(given, undefined, { domain: place, nonce: `0x${'7c'.repeat(32)}` })
  await deposit(bench, seller, 1_000_000n)
  await untilBalance(gateway.url, seller.address, format(1_000_000n + value + 1_000n))
  const backBody = { to: customer.address, value: -back.value, nonce: back.nonce, receiptHash: back.root }
  const backId = await settle(gateway.url, await paymentBody(bench.wallet, seller, backBody))
  await ended(gateway.url, backId)
  const { batchId: backBatch, transactionHash: backHash, receipt: backProof } = await transferOf(gateway.url, backId)
  const returned = { ...back, batch: { id: BigInt(backBatch), txHash: backHash, ...backProof } }
  const paidBack = await verify(documentOf(given[0]!, { payment: returned, entries: given }, place), ...options)
  assert.deepEqual([paidBack.code, /✓ chain/.test(paidBack.text)], [0, true], paidBack.text)
  const { batch: _, ...submitted } = onChain
  const waiting = await verify(documentOf(covered[2]!, { payment: submitted, entries: covered }, place), ...options)
  assert.deepEqual([waiting.code, /valid; its payment is not on chain yet/.test(waiting.text)], [1, true], waiting.text)
  const free = covered.slice(0, 1).map((entry) => ({ ...entry, amount: 0n }))
  const paidNothing = pay(free, undefined, { domain: place })
  const nothing = await verify(documentOf(free[0]!, { payment: paidNothing, entries: free }, place), ...options)
  assert.deepEqual([nothing.code, /✓ chain.*no transfer is needed/.test(nothing.text)], [0, true], nothing.text)
  // Genuine, but of another chain than the node's.
  const elsewhere = { ...domain, chainId: 1n }
  const foreign = settleInBatch(pay(entries, undefined, { domain: elsewhere }))
  const { code, text } = await verify(documentOf(entries[0]!, { payment: foreign, entries }, elsewhere), ...options)
  assert.deepEqual([code, /is for chain 1; the node is on chain/.test(text)], [1, true], text)

  const header = { domain: place, payer: onChain.payer, issuer }
  const items = (paid: SignedPayment) => [{ payment: paid }, ...covered.map((entry) => ({ entry }))]
  const textOf = async (paid: SignedPayment) =>
    (await Array.fromAsync(writeBundle(header, items(paid), keccak256))).join('')
  const bundle = await verify(await textOf(onChain), ...options)
  assert.deepEqual([bundle.code, /✓ chain/.test(bundle.text)], [0, true], bundle.text)
  const wrong = { ...onChain, batch: { ...onChain.batch!, id: onChain.batch!.id + 1n } }
  assert.match((await verify(await textOf(wrong), ...options)).text, /✗ chain[\s\S]*The bundle is NOT valid/)
  const silent = await verify(document, '--rpc', 'http://127.0.0.1:9')
  assert.match(silent.text, /^penny: The chain node does not respond: [^\n]+\n$/)
})
