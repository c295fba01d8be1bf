import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd, type Ending } from '../../test/support/at-end.ts'
import { terms } from '../../test/support/signing.ts'
import { OperatorError } from '../errors.ts'
import { findSettlementEndpoints, readSettlementEndpoints, writeSettlementEndpoints } from './settlement-endpoints.ts'

test('only its owner can read the file of settlement endpoints: it may contain a provider’s key', (t) => {
  const folder = openFolder(t)
  const path = join(folder, 'settlement-endpoints.json')
  // Left by a version that let everybody read it: the file, and one that was being written.
  for (const file of [path, `${path}.new`]) writeFileSync(file, '{}', { mode: 0o644 })
  const { seller } = terms
  const line = { rpcUrl: 'https://node.example/key', gatewayUrl: '', terms, issuer: seller, relayer: seller }
  writeSettlementEndpoints(folder, line)
  assert.equal(readSettlementEndpoints(folder).rpcUrl, line.rpcUrl)
  assert.equal(statSync(path).mode & 0o777, 0o600)
})

test('a data folder without settlement has no settlement endpoints', (t) => {
  const folder = openFolder(t)
  assert.equal(findSettlementEndpoints(folder), undefined)
  assert.throws(() => readSettlementEndpoints(folder), /No settling service has run on this data folder/)
})

// `penny audit` compares with the chain if there is one. A damaged file must not make it skip the comparison.
test('a damaged file of settlement endpoints is an error', (t) => {
  const folder = openFolder(t)
  writeFileSync(join(folder, 'settlement-endpoints.json'), '{"rpcUrl":')
  assert.throws(
    () => findSettlementEndpoints(folder),
    (error) => error instanceof OperatorError && error.message.includes(join(folder, 'settlement-endpoints.json')),
  )
})

function openFolder(t: Ending): string {
  const folder = mkdtempSync(join(tmpdir(), 'penny-settlement-endpoints-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  return folder
}
