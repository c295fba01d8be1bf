import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { everyKind, historyOf } from '../../test/support/receipts.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { type BundleItem, writeBundle } from '../receipts/bundle.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { CommandError } from './command.ts'
import { createCounter } from './counter.ts'
import { writeLogin } from './login-file.ts'
import { receiptsCommand } from './receipts.ts'

const history = historyOf(everyKind(), [3, 2])

/** Runs the command with a login to a service that answers with these entries and payments. */
async function openExport(t: TestContext, items: readonly BundleItem[] = history.items, cutsOff = false) {
  const folder = temporaryFolder(t)
  const rows = (async function* () {
    yield* items
  })()
  const texts = await Array.fromAsync(writeBundle(history.header, rows, receiptCrypto.keccak256))
  const server = createServer((_, outgoing) => {
    outgoing.write(cutsOff ? texts[0] : texts.join(''), () => (cutsOff ? outgoing.destroy() : outgoing.end()))
  }).listen(0, '127.0.0.1')
  atEnd(t, async () => void server.close().closeAllConnections())
  await once(server, 'listening')
  const config = readConfig({ XDG_CONFIG_HOME: folder, DATA_DIR: join(folder, 'none') })
  const { port } = server.address() as AddressInfo
  writeLogin(config, { origin: `http://127.0.0.1:${port}`, api_key: 'penny_test' })
  let written = ''
  const run = async (words: readonly string[], json = false) => {
    written = ''
    const output = { json, color: false, width: undefined, write: (text: string) => void (written += text) }
    const code = await receiptsCommand.run({ words, options: {}, config, output })
    return { code, text: written }
  }
  return { file: join(folder, 'receipts.jsonl'), run }
}

test('an account’s receipts are exported into one private file that verifies', async (t) => {
  const { file, run } = await openExport(t)
  const { code, text } = await run(['export', file])
  assert.deepEqual(
    [code, text],
    [0, `${file}: 7 entries, 2 payments, 2 entries unpaid.\nVerify it anywhere: penny verify ${file}\n`],
  )
  assert.equal(statSync(file).mode & 0o777, 0o600)
  const again = await openExport(t)
  const { ok, entries, payments } = JSON.parse((await again.run(['export', again.file], true)).text)
  assert.deepEqual([ok, entries, payments], [true, '7', '2'])
  assert.equal(readFileSync(file, 'utf8'), readFileSync(again.file, 'utf8'))
})

test('an existing file is not overwritten, and a failed export leaves no file', async (t) => {
  const { file, run } = await openExport(t)
  writeFileSync(file, 'mine')
  await assert.rejects(
    run(['export', file]),
    (error) => error instanceof CommandError && /already exists/.test(error.message),
  )
  assert.equal(readFileSync(file, 'utf8'), 'mine')
  const failing = await openExport(t, history.items, true)
  await assert.rejects(failing.run(['export', failing.file]), /ended the export early/)
  assert.equal(existsSync(failing.file), false)
  await assert.rejects(run(['export', join(file, 'below')]), CommandError)
})

test('rows that do not prove what they say are noticed by the export itself', async (t) => {
  const wrong = history.items.map((item) =>
    'entry' in item && item.entry.number === 2n ? { entry: { ...item.entry, amount: 1n } } : item,
  )
  const { file, run } = await openExport(t, wrong)
  const { code, text } = await run(['export', file])
  assert.equal(code, 1)
  assert.match(text, /✗ payments[\s\S]*The export is not valid\. Report it to the operator/)
})

test('a wrong call is answered with the right one', async (t) => {
  const { run } = await openExport(t)
  for (const words of [[], ['list'], ['export']]) {
    await assert.rejects(run(words), (error) => error instanceof CommandError && error.exitCode === 2)
  }
})

test('a count is shown in a terminal, ten times a second at most, and nowhere else', () => {
  let [written, nowMs] = ['', 0]
  const stream = (isTTY: boolean) => ({ isTTY, write: (text: string) => (written += text) })
  const counter = createCounter('rows', stream(true), () => nowMs)
  counter.show(1n)
  counter.show(2n)
  nowMs = 100
  counter.show(12_345n)
  counter.end()
  assert.equal(written, '\r\x1b[2K  1 rows\r\x1b[2K  12,345 rows\r\x1b[2K')
  written = ''
  const silent = createCounter('rows', stream(false))
  silent.show(1n)
  silent.end()
  assert.equal(written, '')
})
