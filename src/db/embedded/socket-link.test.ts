import assert from 'node:assert/strict'
import { mkdtemp, readlink, rm, symlink, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd, type Ending } from '../../../test/support/at-end.ts'
import { ensureSocketLink, refreshSocketLink, removeSocketLink } from './socket-link.ts'

test('every process finds the same short link, also after a cleaner of the temp folder took it', async (t) => {
  const folder = join(await temporaryFolder(t), 'x'.repeat(200))
  const [first, second] = await Promise.all([ensureSocketLink(folder), ensureSocketLink(folder)])
  assert.equal(first, second)
  assert.equal(await readlink(first), folder)
  assert.equal(Buffer.byteLength(join(first, '.s.PGSQL.5432')) <= 103, true)
  await unlink(first)
  await refreshSocketLink(folder)
  assert.equal(await readlink(first), folder)
  await removeSocketLink(folder)
  await assert.rejects(readlink(first), { code: 'ENOENT' })
})

// An attacker that guesses the name could redirect us to another server.
test('a link that leads elsewhere is neither followed nor removed', async (t) => {
  const folder = await temporaryFolder(t)
  const taken = await ensureSocketLink(folder)
  await unlink(taken)
  await symlink('/elsewhere', taken)
  atEnd(t, () => unlink(taken))
  const link = await ensureSocketLink(folder)
  assert.notEqual(link, taken)
  assert.equal(await readlink(link), folder)
  await removeSocketLink(folder)
  assert.equal(await readlink(taken), '/elsewhere')
  await assert.rejects(readlink(link), { code: 'ENOENT' })
})

async function temporaryFolder(t: Ending): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'penny-link-'))
  atEnd(t, () => rm(folder, { recursive: true, force: true }))
  return folder
}
