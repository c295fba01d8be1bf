import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../../test/support/at-end.ts'
import { prepareBinaries } from './binaries.ts'

test('the library links that the install script would have made are made, also by two processes at once', async (t) => {
  const packageRoot = await temporaryPackage(t)
  // A dangling link, as in a broken copy of node_modules, is replaced.
  await symlink('gone', join(packageRoot, 'native/lib/libpq.so.5'))
  const [first, second] = await Promise.all([prepareBinaries(packageRoot), prepareBinaries(packageRoot)])
  assert.deepEqual(first, second)
  assert.equal(first.major, 18)
  assert.equal(await readlink(join(packageRoot, 'native/lib/libpq.so')), 'libpq.so.5.18')
  assert.equal(await readlink(join(packageRoot, 'native/lib/libpq.so.5')), 'libpq.so.5.18')
  assert.deepEqual((await readdir(join(packageRoot, 'native/lib'))).sort(), ['libpq.so', 'libpq.so.5', 'libpq.so.5.18'])
})

test('a link that cannot be made is named', async (t) => {
  const packageRoot = await temporaryPackage(t)
  await rm(join(packageRoot, 'native/lib'), { recursive: true })
  await assert.rejects(prepareBinaries(packageRoot), {
    message: /^The library link .*libpq\.so of the embedded PostgreSQL is missing and cannot be made/,
  })
})

async function temporaryPackage(t: TestContext): Promise<string> {
  const packageRoot = await mkdtemp(join(tmpdir(), 'penny-package-'))
  atEnd(t, () => rm(packageRoot, { recursive: true, force: true }))
  await mkdir(join(packageRoot, 'native/lib'), { recursive: true })
  const source = 'native/lib/libpq.so.5.18'
  const links = ['native/lib/libpq.so', 'native/lib/libpq.so.5'].map((target) => ({ source, target }))
  await writeFile(join(packageRoot, 'native/pg-symlinks.json'), JSON.stringify(links))
  await writeFile(join(packageRoot, 'package.json'), '{ "version": "18.4.0-beta.17" }')
  await writeFile(join(packageRoot, source), '')
  return packageRoot
}
