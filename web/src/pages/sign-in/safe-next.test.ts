import assert from 'node:assert/strict'
import { test } from 'node:test'
import { safeNext } from './safe-next.ts'

test('after signing in a link leads to a page of the dashboard, never to another site', () => {
  assert.equal(safeNext('/requests?status=failed'), '/requests?status=failed')
  for (const bad of [
    undefined,
    '',
    '//evil.example',
    '/\\evil.example',
    'https://evil.example',
    'javascript:0',
    '/login',
  ])
    assert.equal(safeNext(bad), '/', String(bad))
})
