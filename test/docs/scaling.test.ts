import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { growthTable } from '../../bench/growth-model.ts'

const page = readFileSync(new URL('../../docs/scaling.md', import.meta.url), 'utf8')

test('the model of growth on the page is the one that is computed: node bench/growth-model.ts', () => {
  assert.ok(page.includes(growthTable()), growthTable())
})

test('the page names every table that Citus is told of', () => {
  const script = readFileSync(new URL('../../deploy/citus.sql', import.meta.url), 'utf8')
  const tables = [...script.matchAll(/create_(?:reference|distributed)_table\('(\w+)'/g)].map((match) => match[1]!)
  assert.deepEqual(
    tables.filter((table) => !page.includes(`\`${table}\``)),
    [],
  )
})
