import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const built = join(root, 'web/dist')
const initialBytesMax = 180 * 1024

before(() => {
  assert.equal(spawnSync(process.execPath, [join(root, 'web/build.ts'), '--if-stale'], { stdio: 'inherit' }).status, 0)
})

test('the first page needs at most 180 KB of JavaScript, as it is sent', () => {
  const page = readFileSync(join(built, 'index.html'), 'utf8')
  const scripts = [...page.matchAll(/(?:src|href)="\/([^"]+\.js)"/g)].map((match) => match[1]!)
  const bytes = scripts.reduce((sum, script) => sum + statSync(join(built, `${script}.gz`)).size, 0)
  assert.ok(scripts.length >= 2 && bytes <= initialBytesMax, `${scripts.length} scripts, ${bytes} bytes`)
})

test('nothing is loaded from another origin or inline: the policy is default-src self', () => {
  const page = readFileSync(join(built, 'index.html'), 'utf8')
  assert.deepEqual([...page.matchAll(/<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|(?:src|href)="(?!\/)/g)], [])
  const sheets = readdirSync(join(built, 'assets')).filter((file) => file.endsWith('.css'))
  for (const sheet of sheets)
    assert.doesNotMatch(readFileSync(join(built, 'assets', sheet), 'utf8'), /url\((?!["']?\/)/)
})
