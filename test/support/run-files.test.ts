import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { atEnd } from './at-end.ts'
import type { RunSettings } from './run-files.ts'
import { until } from './until.ts'

/** When its failure is known, the test around the failure is running. */
const hangingFile = `import { test } from 'node:test'
test('passes', () => {})
test('hangs', async (t) => {
  await t.test('fails', () => { throw new Error('for a reason') })
  await new Promise(() => setInterval(() => {}, 1_000))
})`
const failingFile = `import { after, before, test } from 'node:test'
let isOpen = false
before(() => { isOpen = true })
after(() => { isOpen = false })
test('has its hooks', () => { if (!isOpen) throw new Error('its hook has not run') })
test('fails', () => { throw new Error('for a reason') })`
const names = ['first.test.mjs', 'second.test.mjs']
const program = fileURLToPath(new URL('./run-files.ts', import.meta.url))

/** Begins a run of two copies of the file. */
async function runCopies(t: TestContext, file: string, settings: Partial<RunSettings> = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'penny-run-files-'))
  atEnd(t, () => rmSync(folder, { recursive: true }))
  for (const name of names) writeFileSync(join(folder, name), file)
  const failuresFile = join(folder, 'failures.txt')
  const all: RunSettings = { groups: [names], concurrency: 2, testMsMax: 60_000, failuresFile, ...settings }
  const environment = { ...process.env, NODE_TEST_CONTEXT: undefined }
  const runner = spawn(process.execPath, [program, JSON.stringify(all)], { cwd: folder, env: environment })
  const failures = () => (existsSync(failuresFile) ? readFileSync(failuresFile, 'utf8') : '')
  const ended = Promise.all([text(runner.stdout), text(runner.stderr), once(runner, 'close')])
  return { runner, failures, ended: ended.then(([said, complaints, [code]]) => ({ said: complaints + said, code })) }
}

test('a run that is stopped names the files and tests that were running, and what had failed before', async (t) => {
  const { runner, failures, ended } = await runCopies(t, hangingFile, { groups: names.map((name) => [name]) })
  await until(() => failures().split('for a reason').length > names.length)
  runner.kill('SIGTERM')
  const { said, code } = await ended
  assert.equal(code, 1)
  for (const text of [said, failures()]) {
    for (const name of names) {
      const running = `${RegExp.escape(name)}, started \\d+ s ago, 1 tests passed, running:\\n  "hangs" \\(line 3\\)`
      assert.match(text, new RegExp(running))
    }
  }
  assert.match(failures(), /✖ fails .*second\.test\.mjs:4\)\n.*for a reason/)
})

test('files of a group share a process and nothing else: each has its hooks, and a failure is that of its file', async (t) => {
  const { failures, ended } = await runCopies(t, failingFile)
  const { said, code } = await ended
  assert.equal(code, 1)
  assert.match(said, /ℹ pass 2\nℹ fail 2\n/)
  for (const file of names) assert.match(failures(), new RegExp(`✖ fails \\(${file}:6\\)\\n.*for a reason`))
  assert.equal(failures().split('✖').length - 1, names.length)
})
