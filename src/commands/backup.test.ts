import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { readConfig } from '../config/config.ts'
import { backUp } from '../db/embedded/backup.ts'
import { startEmbeddedPostgres } from '../db/embedded-postgres.ts'
import { backupCommand } from './backup.ts'

async function openService(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'penny-backup-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  const dataDir = join(folder, 'data')
  const postgres = await startEmbeddedPostgres({ dataDir })
  atEnd(t, () => postgres.stop())
  const config = readConfig({ DATA_DIR: dataDir })
  const output = { json: false, color: false, width: undefined, write: () => {} }
  const backup = (target: string) => backupCommand.run({ words: [target], options: {}, config, output })
  return { folder, dataDir, url: postgres.url, backup }
}

// PostgreSQL starts on a part of its folder, too: with a wrong ledger, or with an empty one.
test('a backup that fails half-way leaves nothing that looks like one', async (t) => {
  const { folder, dataDir, backup } = await openService(t)
  // Copied after the database, to a path that is too long.
  mkdirSync(join(dataDir, 'signer'))
  writeFileSync(join(dataDir, 'signer', 'x'.repeat(250)), '')
  const deep = join(folder, ...Array.from({ length: 15 }, () => 'y'.repeat(249)))
  const target = join(deep, 'z'.repeat(3_900 - deep.length))
  await assert.rejects(backup(target), /^CommandError: Nothing was backed up: ENAMETOOLONG/)
  assert.deepEqual(readdirSync(dirname(target)), [])
})

test('a backup has its name when it is complete', async (t) => {
  const { folder, dataDir, backup } = await openService(t)
  writeFileSync(join(dataDir, 'postgres.log.1'), 'a log')
  const target = join(folder, 'backups', 'today')
  assert.equal(await backup(target), 0)
  assert.deepEqual(readdirSync(dirname(target)), ['today'])
  assert.deepEqual(readdirSync(target), ['postgres'])
  await (await startEmbeddedPostgres({ dataDir: target })).stop()
})

// It would copy itself until the disk is full.
test('a backup into the data folder is refused, also through a symbolic link', async (t) => {
  const { folder, dataDir, backup } = await openService(t)
  mkdirSync(join(dataDir, 'copies'))
  symlinkSync(join(dataDir, 'copies'), join(folder, 'copies'))
  for (const target of [join(dataDir, 'today'), join(folder, 'copies', 'today'), join(folder, 'copies', 'a', 'b')])
    await assert.rejects(backup(target), /^CommandError: The copy must be outside DATA_DIR\.$/)
  assert.deepEqual(readdirSync(join(dataDir, 'copies')), [])
})

test('a second backup at the same time is refused in one line, and leaves nothing behind', async (t) => {
  const { folder, url, backup } = await openService(t)
  await backUp(url, async () => {
    await assert.rejects(
      backup(join(folder, 'second')),
      /^OperatorError: Another penny backup of this service is running/,
    )
  })
  assert.deepEqual(readdirSync(folder), ['data'])
  assert.equal(await backup(join(folder, 'second')), 0)
})
