import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'

const watchdog = new URL('./watchdog.ts', import.meta.url).href

test('a process that stays after its tests is ended, named and red', () => {
  const lingering = "import { test } from 'node:test'; test('done', () => {}); setInterval(() => {}, 1_000)"
  const { stderr, status } = run(lingering, { TEST_LINGER_MS: '10' })
  assert.match(stderr, /did not exit within 0.01 s: its tests have ended; open: /)
  assert.equal(status, 1)
})

test('a file whose test hangs is ended alone, and the test that was running is named', () => {
  const hanging = `
    import { describe, mock, test } from 'node:test'
    test('done', () => {})
    describe('of a suite', () => test('hangs', () => new Promise(() => {
      setInterval(() => mock.timers.tick(40 * 60_000), 10)
    })))
    test('never starts', () => {})`
  const { stdout, stderr, status } = run(hanging, {}, fakeClock)
  assert.match(stderr, /did not exit within 2400 s: running: of a suite > hangs; open: /)
  assert.match(stdout, /✔ done/, 'the tests that had ended are reported')
  assert.equal(status, 1)
})

/** Loaded before the watchdog, so that the hanging test can let its time pass. */
const fakeClock =
  '--import=data:text/javascript,import { mock } from "node:test"; mock.timers.enable({ apis: ["setTimeout"] })'

function run(program: string, environment: Readonly<Record<string, string>>, ...flags: readonly string[]) {
  return spawnSync(
    process.execPath,
    [...flags, `--import=${watchdog}`, '--test-reporter=spec', '--input-type=module', '--eval', program],
    {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, TEST_FAILURES_FILE: undefined, ...environment },
      encoding: 'utf8',
      timeout: 60_000,
    },
  )
}
