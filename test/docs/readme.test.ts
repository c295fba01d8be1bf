import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { test } from 'node:test'

const root = new URL('../../', import.meta.url)
const readme = readFileSync(new URL('README.md', root), 'utf8')
const config = readFileSync(new URL('src/config.ts', root), 'utf8')

test('the README names every variable that the service reads, and no other', () => {
  const read = new Set([...config.matchAll(/(?<!\?\? )'([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*)'/g)].map((match) => match[1]!))
  const table = readme.slice(readme.indexOf('## Configuration'), readme.indexOf('## For engineers'))
  const cells = table.split('\n').flatMap((line) => /^\| (`.*?) \|/.exec(line)?.[1] ?? [])
  const named = new Set(cells.flatMap((cell) => [...cell.matchAll(/`([A-Z0-9_]+)`/g)].map((match) => match[1]!)))
  assert.deepEqual([...named].sort(), [...read].sort())
})

test('the README marks every secret, which may stand in a file', () => {
  const secrets = [...config.matchAll(/read\.secret\('([A-Z_]+)'\)|'([A-Z]+_API_KEY)'/g)].map(
    (match) => match[1] ?? match[2]!,
  )
  for (const name of secrets) assert.ok(readme.includes(`\`${name}\`*`), name)
})

test('links of the README lead somewhere', () => {
  const targets = [...readme.matchAll(/\]\((?!\w+:|#)([^()\s#]+)/g)].map((match) => match[1]!)
  assert.deepEqual(
    targets.filter((target) => !existsSync(new URL(target, root))),
    [],
  )
})
