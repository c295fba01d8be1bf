import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd, type Ending } from '../../test/support/at-end.ts'
import { terms } from '../../test/support/signing.ts'
import { OperatorError } from '../errors.ts'
import { findSettlementEndpoints, readSettlementEndpoints, writeSettlementEndpoints } from './settlement-endpoints.ts'

test('where the money is stands in a file that its owner alone can read: a provider’s key may be in it', (t) => {
  const folder = openFolder(t)
  const path = join(folder, 'money-line.json')
  // Of a version that let everybody read it, whole and half-way.
  for (const file of [path, `${path}.new`]) writeFileSync(file, '{}', { mode: 0o644 })
  const { seller } = terms
  const line = { rpcUrl: 'https://node.example/key', gatewayUrl: '', terms, issuer: seller, relayer: seller }
  writeSettlementEndpoints(folder, line)
  assert.equal(readSettlementEndpoints(folder).rpcUrl, line.rpcUrl)
  assert.equal(statSync(path).mode & 0o777, 0o600)
})

test('a data folder on which nothing was settled has no money line', (t) => {
  const folder = openFolder(t)
  assert.equal(findSettlementEndpoints(folder), undefined)
  assert.throws(() => readSettlementEndpoints(folder), /No settling service has run on this data folder/)
})

// `penny audit` compares with the chain where there is one: a damaged file must not let it pass for one that has none.
test('a money line that cannot be read is not taken for none', (t) => {
  const folder = openFolder(t)
  writeFileSync(join(folder, 'money-line.json'), '{"rpcUrl":')
  assert.throws(
    () => findSettlementEndpoints(folder),
    (error) => error instanceof OperatorError && error.message.includes(join(folder, 'money-line.json')),
  )
})

function openFolder(t: Ending): string {
  const folder = mkdtempSync(join(tmpdir(), 'penny-money-line-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  return folder
}
