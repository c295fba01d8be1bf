import assert from 'node:assert/strict'
import { test } from 'node:test'
import { loadPriceList } from '../billing/price-list.ts'
import { type KeyOptions, noOptions } from '../identity/key-options.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { checkKeyCap, checkKeyRules, isKeyRuleError, underKeyRules } from './key-rules.ts'

const address = '192.0.2.7'
const chat = { model: 'gpt-5.6-terra', webSearch: undefined, webFetch: undefined } as ChatRequest
const model = loadPriceList(undefined).models.get('gpt-5.6-terra')!

function codeOf(options: Partial<KeyOptions>, changes: Partial<ChatRequest> = {}, from = address): string | undefined {
  try {
    checkKeyRules({ ...noOptions, ...options }, { ...chat, ...changes }, from)
    return undefined
  } catch (error) {
    assert.ok(isKeyRuleError(error))
    return (error as { code: string }).code
  }
}

test('a key without options may send everything from everywhere', () => {
  assert.equal(codeOf({}), undefined)
  assert.equal(codeOf({}, { webSearch: true, webFetch: true }), undefined)
})

test('the address is checked first, then the model, then the web tools', () => {
  const all = { allowedIps: ['198.51.100.0/24'], allowedModels: ['gpt-5.6-luna'], webTools: false }
  assert.equal(codeOf(all, { webSearch: true }), 'ip_not_allowed')
  assert.equal(codeOf(all, { webSearch: true }, '198.51.100.9'), 'model_not_allowed')
  assert.equal(codeOf(all, { webSearch: true, model: 'gpt-5.6-luna' }, '198.51.100.9'), 'web_tools_not_allowed')
  assert.equal(codeOf(all, { webFetch: true, model: 'gpt-5.6-luna' }, '198.51.100.9'), 'web_tools_not_allowed')
  assert.equal(codeOf(all, { model: 'gpt-5.6-luna' }, '::ffff:198.51.100.9'), undefined)
})

test('without web tools the defaults are off, and what was asked for stays', () => {
  const off = { ...noOptions, webTools: false }
  assert.deepEqual(underKeyRules(off, chat), { ...chat, webSearch: false, webFetch: false })
  assert.equal(underKeyRules(noOptions, chat), chat)
})

test('the cap of a key counts what searches can add', () => {
  const quote = { amount: fromAtomic(1_000n), inputTokensMax: 100, maxTokens: 100, lines: [] }
  const check = (keyCap: bigint, searchMax: bigint) => {
    const options = { ...noOptions, maxRequestCost: fromAtomic(keyCap) }
    checkKeyCap(options, { model, quote, searchMax: fromAtomic(searchMax) })
  }
  check(1_000n, 0n)
  check(1_500n, 500n)
  assert.throws(() => check(999n, 0n), isKeyRuleError)
  assert.throws(
    () => check(1_499n, 500n),
    ({ message }) => /may cost up to 0\.0015 USDC .*allows 0\.001499 USDC .*Send web_search: false/.test(message),
  )
  assert.doesNotThrow(() => checkKeyCap(noOptions, { model, quote, searchMax: zero }))
})
