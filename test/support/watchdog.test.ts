import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'

const watchdog = new URL('./watchdog.ts', import.meta.url).href
const lingering = "import { test } from 'node:test'; test('done', () => {}); setInterval(() => {}, 1_000)"

test('a process that stays after its tests is ended, named and red', () => {
  const child = spawnSync(process.execPath, [`--import=${watchdog}`, '--input-type=module', '--eval', lingering], {
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, TEST_LINGER_MS: '10' },
    encoding: 'utf8',
    timeout: 60_000,
  })
  assert.match(child.stderr, /does not end: after 0.01 s its tests are over/)
  assert.equal(child.status, 1)
})
