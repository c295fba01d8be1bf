import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
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
const program = fileURLToPath(new URL('./run-files.ts', import.meta.url))

test('a run that is stopped names the files and tests that were running, and what had failed before', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-run-files-'))
  atEnd(t, () => rmSync(folder, { recursive: true }))
  const place = (name: string) => join(folder, name)
  const files = ['first', 'second'].map((name) => place(`${name}.test.mjs`))
  for (const file of files) writeFileSync(file, hangingFile)
  const settings: RunSettings = {
    groups: files.map((file) => [file]),
    concurrency: 2,
    testMsMax: 60_000,
    failuresFile: place('failures.txt'),
  }
  const runner = spawn(process.execPath, [program, JSON.stringify(settings)], {
    cwd: folder,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
  })
  const output = text(runner.stdout)
  const complaints = text(runner.stderr)
  const failures = () => (existsSync(settings.failuresFile) ? readFileSync(settings.failuresFile, 'utf8') : '')
  await until(() => failures().split('for a reason').length > files.length)
  runner.kill('SIGTERM')
  const [code] = await once(runner, 'close')
  const said = (await complaints) + (await output)
  assert.equal(code, 1)
  for (const text of [said, failures()]) {
    for (const name of ['first', 'second']) {
      const running = `${name}\\.test\\.mjs, started \\d+ s ago, 1 tests passed, running:\\n  "hangs" \\(line 3\\)`
      assert.match(text, new RegExp(running))
    }
  }
  assert.match(failures(), /✖ fails .*second\.test\.mjs:4\)\n.*for a reason/)
})

test('files of a group share a process and nothing else: each has its hooks, and a failure is that of its file', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-run-files-'))
  atEnd(t, () => rmSync(folder, { recursive: true }))
  const place = (name: string) => join(folder, name)
  const group = ['first', 'second'].map((name) => `${name}.test.mjs`)
  for (const file of group) writeFileSync(place(file), failingFile)
  const settings: RunSettings = {
    groups: [group],
    concurrency: 1,
    testMsMax: 60_000,
    failuresFile: place('failures.txt'),
  }
  const runner = spawn(process.execPath, [program, JSON.stringify(settings)], {
    cwd: folder,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
  })
  const [output, [code]] = await Promise.all([text(runner.stdout), once(runner, 'close')])
  assert.equal(code, 1)
  assert.match(output, /ℹ pass 2\nℹ fail 2\n/)
  const failures = readFileSync(settings.failuresFile, 'utf8')
  for (const file of group) assert.match(failures, new RegExp(`✖ fails \\(${file}:6\\)\\n.*for a reason`))
  assert.equal(failures.split('✖').length - 1, group.length)
})
