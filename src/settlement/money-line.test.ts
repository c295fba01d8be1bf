import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { terms } from '../../test/support/signing.ts'
import { readMoneyLine, writeMoneyLine } from './money-line.ts'

test('where the money is stands in a file that its owner alone can read: a provider’s key may be in it', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-money-line-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'money-line.json')
  // Of a version that let everybody read it, whole and half-way.
  for (const file of [path, `${path}.new`]) writeFileSync(file, '{}', { mode: 0o644 })
  const { seller } = terms
  const line = { rpcUrl: 'https://node.example/key', gatewayUrl: '', terms, issuer: seller, relayer: seller }
  writeMoneyLine(folder, line)
  assert.equal(readMoneyLine(folder).rpcUrl, line.rpcUrl)
  assert.equal(statSync(path).mode & 0o777, 0o600)
})
