import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { prepareDataDir } from './data-dir.ts'

const folder = mkdtempSync(join(tmpdir(), 'penny-data-dir-'))
chmodSync(folder, 0o755)
after(() => rmSync(folder, { recursive: true, force: true }))

const rootOnly = process.getuid?.() === 0 ? {} : { skip: 'only root can act as two users' }
const nobody = 65_534

test('the data folder is made, and others may pass through it without looking around', async () => {
  const path = join(folder, 'made', 'data')
  await prepareDataDir(path)
  assert.equal(statSync(path).mode & 0o777, 0o711)
  chmodSync(path, 0o777)
  await prepareDataDir(path)
  assert.equal(statSync(path).mode & 0o777, 0o711)
})

// The root of a Kubernetes volume: it belongs to root, and the service may write to it through its group.
test('a writable folder of another user is used as it is', rootOnly, async () => {
  const path = join(folder, 'volume')
  mkdirSync(path)
  chmodSync(path, 0o777)
  const module = new URL('./data-dir.ts', import.meta.url).href
  // Becomes `nobody` only after reading the module: this clone may be in a folder that other users cannot enter.
  const script = `
    const { prepareDataDir } = await import(${JSON.stringify(module)})
    process.setgroups([])
    process.setgid(${nobody})
    process.setuid(${nobody})
    await prepareDataDir(${JSON.stringify(path)})`
  await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script])
  assert.equal(statSync(path).mode & 0o777, 0o777)
})

test('a folder that cannot be created is reported in one line', async () => {
  const file = join(folder, 'file')
  writeFileSync(file, '')
  await assert.rejects(
    prepareDataDir(join(file, 'data')),
    /^UnusableSettingError: DATA_DIR cannot be used: .*data is not a folder, or is inside a file\. Set DATA_DIR to a folder/,
  )
  await assert.rejects(prepareDataDir(file), /^UnusableSettingError: DATA_DIR cannot be used: .*file is not a folder/)
})

// Node's recursive mkdir used the whole core there until it was killed.
test('a data folder that can never exist is refused within a second', {
  skip: process.platform !== 'linux',
}, async () => {
  await assert.rejects(prepareDataDir('/proc/penny/deep'), /DATA_DIR.*\/proc\/penny/s)
})
