import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { readConfig } from '../config/config.ts'
import { loadCatalog } from './catalog.ts'

const folder = mkdtempSync(join(tmpdir(), 'penny-catalog-'))
after(() => rmSync(folder, { recursive: true }))

const provider = { protocol: 'responses', base_url: 'http://127.0.0.1:9/v1', api_key: null }
const model = {
  id: 'm',
  input_per_million: '1',
  output_per_million: '5',
  max_output_tokens: 100,
  upstreams: [{ provider: 'one' }],
}

function load(models: readonly object[]) {
  const file = join(folder, 'providers.json')
  writeFileSync(file, JSON.stringify({ providers: { one: provider }, models }))
  return loadCatalog(readConfig({ DATA_DIR: folder, PROVIDERS_FILE: file }))
}

test('two default models are one line that names the second', () => {
  const models = [
    { ...model, default: true },
    { ...model, id: 'n', default: true },
  ]
  assert.throws(() => load(models), { message: /^PROVIDERS_FILE cannot be used: models\[1\].*default.*\.$/ })
})

test('a price below the provider’s cost is a warning that names model, provider and both amounts', () => {
  const upstreams = [{ provider: 'one', input_cost_per_million: '1', output_cost_per_million: '5.5' }]
  assert.deepEqual(load([{ ...model, upstreams }]).warnings, [
    'PROVIDERS_FILE: m sells output for 5 USDC per million tokens; one charges 5.5.',
  ])
})
