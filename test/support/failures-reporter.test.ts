import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { atEnd } from './at-end.ts'

const reporter = fileURLToPath(new URL('./failures-reporter.ts', import.meta.url))

test('the reporter prints what failed, where and why, and nothing else', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'penny-failures-'))
  atEnd(t, () => rmSync(folder, { recursive: true }))
  writeFileSync(
    join(folder, 'some.test.mjs'),
    [
      "import assert from 'node:assert/strict'",
      "import { test } from 'node:test'",
      "test('holds', () => {})",
      "test('outer', async (t) => {",
      "  await t.test('inner', () => assert.equal(1, 2))",
      '})',
      "test('not yet', { todo: true }, () => assert.fail('later'))",
    ].join('\n'),
  )
  writeFileSync(join(folder, 'broken.test.mjs'), "throw new Error('cannot be loaded')")
  const child = spawnSync(process.execPath, ['--test', `--test-reporter=${reporter}`], {
    cwd: folder,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    encoding: 'utf8',
    timeout: 60_000,
  })
  const titles = child.stdout.split('\n').filter((line) => line.startsWith('✖'))
  assert.deepEqual(titles.toSorted(), ['✖ broken.test.mjs (broken.test.mjs:1)', '✖ inner (some.test.mjs:5)'])
  assert.match(child.stdout, /Expected values to be strictly equal/)
})
