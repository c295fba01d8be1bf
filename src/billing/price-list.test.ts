import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { InvalidModelsFileError, loadPriceList } from './price-list.ts'

const folder = mkdtempSync(join(tmpdir(), 'penny-models-'))
after(() => rmSync(folder, { recursive: true }))

const model = {
  id: 'my/model',
  upstream_model: 'llama',
  input_per_million: '0.25',
  output_per_million: '1',
  context_length: 8_192,
  max_output_tokens: 4_096,
}

test('without a file the five models of the specification are offered at their prices', () => {
  const { models, defaultModel, searchPerCall } = loadPriceList(undefined)
  const prices = [...models.values()].map(({ id, inputPerMillion, outputPerMillion, maxOutputTokens }) => [
    id,
    inputPerMillion,
    outputPerMillion,
    maxOutputTokens,
  ])
  assert.deepEqual(prices, [
    ['gpt-6-astra', 5_000_000n, 25_000_000n, 128_000],
    ['gpt-5.6-terra', 1_000_000n, 5_000_000n, 64_000],
    ['gpt-5.6-luna', 1_000_000n, 5_000_000n, 64_000],
    ['gpt-5.6-sol', 1_000_000n, 5_000_000n, 64_000],
    ['gpt-5.3-codex-spark', 1_000_000n, 5_000_000n, 16_000],
  ])
  assert.deepEqual([defaultModel, searchPerCall], ['gpt-5.6-terra', 8_750n])
})

test('an operator’s file replaces the list, and its version is its content', () => {
  const first = load([model])
  assert.deepEqual(first.models.get('my/model'), {
    id: 'my/model',
    inputPerMillion: 250_000n,
    outputPerMillion: 1_000_000n,
    contextLength: 8_192,
    maxOutputTokens: 4_096,
  })
  assert.equal(first.defaultModel, 'my/model')
  assert.equal(load([model]).version, first.version)
  assert.notEqual(load([{ ...model, input_per_million: '0.26' }]).version, first.version)
})

test('aliases are ids of their own with the same model and prices behind them', () => {
  const { models, defaultModel } = load([{ ...model, aliases: ['terra', 'penny/terra'] }])
  assert.deepEqual([...models.keys()], ['my/model', 'terra', 'penny/terra'])
  assert.deepEqual(models.get('terra'), { ...models.get('my/model'), id: 'terra' })
  assert.equal(defaultModel, 'my/model')
  const other = { ...model, id: 'other' }
  for (const aliases of [
    'terra',
    [''],
    ['a b'],
    [7],
    ['my/model'],
    ['terra', 'terra'],
    ['other'],
    Array(11).fill('x'),
  ]) {
    assert.throws(() => load([{ ...model, aliases }, other]), InvalidModelsFileError, JSON.stringify(aliases))
  }
})

test('a price that is zero, implausibly high or not a number stops the start', () => {
  for (const input_per_million of ['0', '10001', 'free', -1, null, '0.0000001']) {
    assert.throws(() => load([{ ...model, input_per_million }]), InvalidModelsFileError)
  }
})

test('a list that is empty, doubled or not a list stops the start', () => {
  for (const content of [
    [],
    {},
    [model, model],
    [{ ...model, id: '' }],
    [null],
    [{ ...model, max_output_tokens: 1e9 }],
  ]) {
    assert.throws(() => load(content), InvalidModelsFileError)
  }
  assert.throws(() => loadPriceList(join(folder, 'absent.json')), InvalidModelsFileError)
})

function load(content: unknown) {
  const file = join(folder, 'models.json')
  writeFileSync(file, JSON.stringify(content))
  return loadPriceList(file)
}
