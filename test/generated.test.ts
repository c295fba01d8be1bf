import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { dumpSchema } from '../src/db/schema-dump.ts'
import { renderCommandsPage } from './support/commands-page.ts'
import { renderOpenApi } from './support/openapi.ts'
import { testDatabase } from './support/postgres.ts'

test('schema.sql is what the migrations make', async () => {
  const ledger = await testDatabase()
  const committed = readFileSync(new URL('../schema.sql', import.meta.url), 'utf8')
  assert.equal(committed, await dumpSchema(ledger.database), 'run: npm run generate')
  await ledger.drop()
})

test('openapi.json is what the routes’ schemas say', () => {
  const committed = readFileSync(new URL('../openapi.json', import.meta.url), 'utf8')
  assert.equal(committed, renderOpenApi(), 'run: npm run generate')
})

test('docs/commands.md is what the command table says', async () => {
  const committed = readFileSync(new URL('../docs/commands.md', import.meta.url), 'utf8')
  assert.equal(committed, await renderCommandsPage(), 'run: npm run generate')
})
