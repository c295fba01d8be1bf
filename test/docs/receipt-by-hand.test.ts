import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { atEnd } from '../support/at-end.ts'
import { documentOf, everyKind, pay, settleInBatch } from '../support/receipts.ts'
import { readBlocks } from './guide-blocks.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

// The guide's script shares no code with ours: what it accepts, a stranger can check.
test('the script of the receipts guide proves receipts of every kind, and refuses changed ones', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-by-hand-'))
  atEnd(t, async () => rmSync(folder, { recursive: true }))
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  const blocks = readBlocks(readFileSync(join(root, 'docs/guides/receipts.md'), 'utf8'))
  const script = blocks.findLast(({ language }) => language === 'js')!.text
  writeFileSync(join(folder, 'by-hand.mjs'), script)
  const run = (document: object) => {
    writeFileSync(join(folder, 'receipt.json'), JSON.stringify(document))
    return promisify(execFile)(process.execPath, ['by-hand.mjs'], { cwd: folder })
  }
  const entries = everyKind()
  const payment = settleInBatch(pay(entries))
  for (const entry of entries) {
    const document = documentOf(entry, { payment, entries })
    const { stdout } = await run(document)
    assert.match(
      stdout,
      new RegExp(`^payment ${payment.root}\nissuer  ${payment.issuer}\nbatch   ${payment.batch!.root}\n$`),
    )
  }
  const document = documentOf(entries[0]!, { payment, entries })
  await assert.rejects(run({ ...document, entry: { ...document.entry, amount_atomic: '1' } }), /payment: /)
  await assert.rejects(run({ ...document, payment: { ...document.payment, value_atomic: '1' } }), /issuer : /)
})
