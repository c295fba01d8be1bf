import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { testDatabase } from '../support/postgres.ts'

const root = new URL('../../', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, root), 'utf8')

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
