import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '../money/usdc.ts'
import { announce } from './announce.ts'

test('secrets are announced unless they are to be hidden; then it says where they are', () => {
  const file = {
    base_url: 'http://localhost:1/v1',
    api_key: 'penny_secret',
    dashboard_url: 'http://localhost:1/#once',
    pid: 1,
  }
  const output = { json: false, color: false, width: undefined, write: () => {} }
  const announced = (hidesSecrets: boolean) =>
    announce(file, { spendable: parse('25'), model: 'gpt-6-astra', hidesSecrets }, output)
  for (const secret of [file.api_key, file.dashboard_url]) {
    assert.ok(announced(false).includes(secret))
    assert.ok(!announced(true).includes(secret))
  }
  assert.match(announced(true), /sandbox\.json.*25 test USDC.*penny login-link/s)
})
