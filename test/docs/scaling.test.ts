import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { growthTable } from '../../bench/growth-model.ts'

const page = readFileSync(new URL('../../docs/scaling.md', import.meta.url), 'utf8')

test('the model of growth on the page is the one that is computed: node bench/growth-model.ts', () => {
  assert.ok(page.includes(growthTable()), growthTable())
})

test('the page says where every table lies on a cluster', () => {
  const schema = readFileSync(new URL('../../migrations/0001_baseline.sql', import.meta.url), 'utf8')
  const tables = [...schema.matchAll(/^create table (\w+) \(/gm)].map((match) => match[1]!)
  assert.ok(tables.length > 30)
  assert.deepEqual(
    tables.filter((table) => !page.includes(`\`${table}\``)),
    [],
  )
})
