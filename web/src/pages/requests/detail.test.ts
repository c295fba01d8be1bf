import assert from 'node:assert/strict'
import { test } from 'node:test'
import { detail } from './request-words.ts'

test('a request whose client left says after how many tokens, one of them in the singular', () => {
  const after = (completion_tokens: number) =>
    detail({
      status: 'cancelled',
      usage: {
        prompt_tokens: 5,
        completion_tokens,
        reasoning_tokens: 0,
        cached_tokens: 0,
        total_tokens: 5 + completion_tokens,
        source: 'counted',
      },
      error: null,
      stream: true,
      latency: { first_token_ms: 1, total_ms: 2 },
    })
  assert.equal(after(0), 'Client disconnected before any output')
  assert.equal(after(1), 'Client disconnected after 1 token')
  assert.equal(after(1212), 'Client disconnected after 1,212 tokens')
})
