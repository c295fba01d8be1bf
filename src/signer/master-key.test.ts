import assert from 'node:assert/strict'
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { temporaryFolder } from '../../test/support/signing.ts'
import { OperatorError } from '../errors.ts'
import { fingerprintOf, loadMasterKey } from './master-key.ts'

const one = '11'.repeat(32)
const other = '22'.repeat(32)
const given = (value: string) => ({ value })

test('without a configured key, one is created once, readable only by its user, and kept', async (t) => {
  const folder = temporaryFolder(t)
  const [first, second] = await Promise.all([loadMasterKey(folder), loadMasterKey(folder)])
  assert.deepEqual(first, second)
  assert.equal(first.length, 32)
  assert.deepEqual(await loadMasterKey(folder), first)
  assert.equal(statSync(join(folder, 'master.key')).mode & 0o777, 0o600)
  assert.deepEqual(readdirSync(folder).sort(), ['master.fingerprint', 'master.key'])
  assert.equal(readFileSync(join(folder, 'master.fingerprint'), 'utf8').trim(), fingerprintOf(first))
})

test('a configured key is never written down', async (t) => {
  const folder = temporaryFolder(t)
  assert.equal((await loadMasterKey(folder, given(one))).toString('hex'), one)
  assert.deepEqual(readdirSync(folder), ['master.fingerprint'])
  assert.ok(!readFileSync(join(folder, 'master.fingerprint'), 'utf8').includes(one))
})

test('another key than before is refused: every account would get another address', async (t) => {
  const folder = temporaryFolder(t)
  await loadMasterKey(folder, given(one))
  const refusal = (error: unknown) => error instanceof OperatorError && /Set the previous key\.$/.test(error.message)
  await assert.rejects(loadMasterKey(folder, given(other)), refusal)
  await assert.rejects(loadMasterKey(folder), /MASTER_KEY is not set, but it was before/)
  assert.equal(existsSync(join(folder, 'master.key')), false)
  assert.equal((await loadMasterKey(folder, given(one.toUpperCase()))).toString('hex'), one)
})

test('a key in the folder is neither overwritten nor overruled by a configured one', async (t) => {
  const folder = temporaryFolder(t)
  const made = await loadMasterKey(folder)
  await assert.rejects(loadMasterKey(folder, given(one)), OperatorError)
  rmSync(join(folder, 'master.fingerprint'))
  await assert.rejects(loadMasterKey(folder, given(one)), OperatorError)
  assert.deepEqual(await loadMasterKey(folder, given(made.toString('hex'))), made)
  assert.deepEqual(await loadMasterKey(folder), made)
})

test('a key that others can read is not used', async (t) => {
  const folder = temporaryFolder(t)
  await loadMasterKey(folder)
  for (const mode of [0o640, 0o604, 0o644]) {
    chmodSync(join(folder, 'master.key'), mode)
    await assert.rejects(loadMasterKey(folder), /can be read by others/)
  }
})

test('a damaged key is refused, not replaced', async (t) => {
  const folder = temporaryFolder(t)
  const file = join(folder, 'master.key')
  for (const content of ['', '1234', `${one}00`, 'z'.repeat(64)]) {
    writeFileSync(file, content, { mode: 0o600 })
    await assert.rejects(loadMasterKey(folder), /64 hex digits/)
    assert.equal(readFileSync(file, 'utf8'), content)
  }
  await assert.rejects(
    loadMasterKey(temporaryFolder(t), given('secret')),
    (error: Error) => !error.message.includes('secret'),
  )
})

test('a link in place of the key is not followed', async (t) => {
  const folder = temporaryFolder(t)
  const elsewhere = join(temporaryFolder(t), 'key')
  writeFileSync(elsewhere, one, { mode: 0o600 })
  symlinkSync(elsewhere, join(folder, 'master.key'))
  await assert.rejects(loadMasterKey(folder), /cannot be read/)
})

test('a key in a file of the operator is read there, through a link too, and a malformed one is not repeated', async (t) => {
  const folder = temporaryFolder(t)
  const [file, mounted] = [join(folder, 'secret'), join(folder, 'mounted')]
  writeFileSync(file, `${one}\n`)
  symlinkSync(file, mounted)
  assert.equal((await loadMasterKey(temporaryFolder(t), { file: mounted })).toString('hex'), one)
  writeFileSync(file, 'secret')
  const malformed = (error: Error) => /^MASTER_KEY_FILE \(.+\) must hold 64 hex/.test(error.message)
  await assert.rejects(loadMasterKey(temporaryFolder(t), { file }), malformed)
  await assert.rejects(loadMasterKey(temporaryFolder(t), { file: join(folder, 'absent') }), /absent cannot be read/)
})
