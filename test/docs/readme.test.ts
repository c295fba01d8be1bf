import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { test } from 'node:test'

const root = new URL('../../', import.meta.url)
const readme = readFileSync(new URL('README.md', root), 'utf8')

test('links of the README lead somewhere', () => {
  const targets = [...readme.matchAll(/\]\((?!\w+:|#)([^()\s#]+)/g)].map((match) => match[1]!)
  assert.deepEqual(
    targets.filter((target) => !existsSync(new URL(target, root))),
    [],
  )
})
