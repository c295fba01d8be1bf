import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { refillAlarms } from '../../src/settlement/refill-gas.ts'
import { solvencyInvariant } from '../../src/settlement/watch-solvency.ts'
import { testDatabase } from '../support/postgres.ts'

// Runbooks are read at night: what the service says must be what they say it says.

const root = new URL('../../', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, root), 'utf8')

test('the runbooks have the number of the invariant that a chain shortfall violates', () => {
  const invariant = solvencyInvariant
  assert.match(read('ARCHITECTURE.md'), new RegExp(`^\\| ${invariant} \\| the chain matches the ledger`, 'm'))
  assert.match(read('docs/runbooks/ledger-frozen.md'), new RegExp(`^\\| \`${invariant}\` \\| the chain has less`, 'm'))
  assert.match(read('docs/runbooks/reconcile-mismatch.md'), new RegExp(`the ledger is frozen with \`${invariant}\``))
})

test('the runbook of the relayer has every outcome of a refill that the service logs', () => {
  const runbook = read('docs/runbooks/lost-relayer-gas.md')
  for (const alarm of Object.values(refillAlarms))
    assert.ok(runbook.includes(`\`${alarm}\``), `${alarm} is not in the runbook`)
})

// An operator on call has no time to find out which column or FROM is missing.
test('the database accepts every statement of the documentation', async () => {
  const pages = readdirSync(new URL('docs', root), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => `docs/${file}`)
  // Functions of Citus are there on a cluster only: test/drills/citus.test.ts calls them.
  const statements = pages
    .flatMap((page) => statementsOf(read(page)).map((statement) => ({ page, statement })))
    .filter(({ statement }) => !/\bcitus_\w+\(/.test(statement))
  assert.ok(statements.length >= 8)
  const { database, drop } = await testDatabase()
  try {
    for (const { page, statement } of statements) {
      // What the reader fills in has the type of its column, as null has. Explained, nothing is done.
      const filled = statement.replaceAll(/'…'|…/g, 'null')
      await assert.doesNotReject(database.query(`explain ${filled}`), `${page}: ${statement}`)
    }
  } finally {
    await drop()
  }
})

/** In the text between backticks, in blocks by indentation or fence; up to a semicolon where there is one. */
function statementsOf(markdown: string): readonly string[] {
  const begins = /(?:select|update|delete from|insert into) [^`;]+/.source
  const inText = [...markdown.matchAll(new RegExp(`\`(${begins})\``, 'g'))]
  const inBlocks = [...markdown.matchAll(new RegExp(`^ {4,}(${begins});$`, 'gm'))]
  const fenced = [...markdown.matchAll(/^```sql\n([^`]*)```/gm)].flatMap(([, block]) => [
    ...block!.matchAll(new RegExp(`(${begins})`, 'g')),
  ])
  return [...inText, ...inBlocks, ...fenced].map(([, statement]) => statement!)
}

// Read from the source of the tests: nothing else has their titles, short of running all of them.
test('the tests that the page of faults names are there', () => {
  const files = ['src', 'test', 'contracts', 'gateway', 'sandbox'].flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.test.ts') && !file.includes('node_modules'))
      .map((file) => `${folder}/${file}`),
  )
  const wrong: string[] = []
  for (const line of read('docs/faults.md').match(/^\| F.*/gm)!) {
    let sources: readonly string[] = []
    for (const [, name, title] of line.matchAll(/`([\w./-]+\.test\.ts)`|"([^"]+)"/g)) {
      if (name !== undefined) sources = files.filter((file) => file === name || file.endsWith(`/${name}`)).map(read)
      if (name !== undefined && sources.length === 0) wrong.push(name)
      const parts = title?.split(/ ?… ?|…: ?/).filter((part) => part !== '') ?? []
      if (!sources.some((source) => parts.every((part) => source.includes(part)))) wrong.push(`${title}`)
    }
  }
  assert.deepEqual(wrong, [])
})
