import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { parseSync } from 'oxc-parser'
import pg from 'pg'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'

// TypeScript believes what a statement says about its rows, and PostgreSQL reports a misspelled column only when the statement runs. So a
// copy of the source is made to hand out its texts; PostgreSQL prepares each and describes its columns; and the compiler compares them
// with the row type, in the same copy.

const root = fileURLToPath(new URL('../../', import.meta.url))

type Statement = {
  readonly file: string
  readonly line: number
  /** The source of the expression that is the text of the statement. */
  readonly expression: string
  /** The source of the row type; undefined when the rows are not read by name. */
  readonly row: string | undefined
  /** Whether the row goes through `rowsOf`, which changes the names. */
  readonly isDecoded: boolean
}

/** The maximum of statements whose text depends on a value, by file. PostgreSQL sees them in the tests of their room alone. */
const composed: Readonly<Record<string, number>> = {
  'db/embedded-postgres.ts': 1,
  'db/migrate.ts': 1,
  'db/servers.ts': 1,
  'identity/established.ts': 1,
  'identity/move-members.ts': 1,
  'identity/revoke-access.ts': 2,
  'ledger/audit.ts': 2,
  'ledger/demo-account.ts': 1,
  'ledger/operator-accounts.ts': 1,
  'ledger/operator-health.ts': 1,
  'ledger/request-log.ts': 4,
  'ledger/seal-month.ts': 4,
  'ledger/usage.ts': 2,
}

/** Files that are left out. */
const leftOut: Readonly<Record<string, string>> = {
  'db/citus.ts': 'functions and tables of Citus',
  'db/copy-marker.ts': 'a table that exists only in a copied database',
  'db/copy-rows.ts': 'scripts of several statements',
  'db/database.ts': 'hands texts on',
  'db/exclusive.ts': 'a script of several statements',
  'site/docs/route-docs.ts': 'no database: the query of an address',
}

let folder: string
let database: TestDatabase
before(async () => {
  database = await testDatabase()
  folder = await mkdtemp(join(tmpdir(), 'penny-statements-'))
  await cp(join(root, 'src'), join(folder, 'src'), { recursive: true, filter: (path) => !path.endsWith('.test.ts') })
  for (const name of [
    'node_modules',
    'contracts',
    'gateway',
    'sandbox',
    'web',
    'migrations',
    'package.json',
    'openapi.json',
  ])
    await symlink(join(root, name), join(folder, name))
})
after(async () => {
  await rm(folder, { recursive: true, force: true })
  await database.drop()
})

test('every statement is one that PostgreSQL accepts, with the columns that its row type says', async () => {
  const files = (await readdir(join(folder, 'src'), { recursive: true }))
    .filter((name) => name.endsWith('.ts') && !(name in leftOut))
    .sort()
  const statements = (await Promise.all(files.map((file) => readStatements(file)))).flat()
  assert.ok(statements.length > 400, `${statements.length} statements`)
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const refused: string[] = []
  const left: string[] = []
  const compared: Statement[] = []
  try {
    const byFile = Map.groupBy(statements, (statement) => statement.file)
    // All before the first import: the files import each other.
    for (const [file, own] of byFile) await exposeTexts(file, own)
    for (const [file, own] of byFile) {
      const texts = await readTexts(file)
      const checks: string[] = []
      for (const [place, statement] of own.entries()) {
        const text = texts[place]
        if (text === undefined) {
          left.push(file)
          continue
        }
        const columns = await describe(client, text).catch((error: Error) => {
          refused.push(`${file}:${statement.line} ${error.message}`)
          return undefined
        })
        if (columns === undefined || statement.row === undefined) continue
        const names = columns.map(
          ({ name, type }) => `${JSON.stringify(statement.isDecoded ? decoded(name) : name)}: ${type}`,
        )
        checks.push(
          `type _${compared.push(statement) - 1} = Fits<Differences<{ ${names.join('; ')} }, ${statement.row}>>\n`,
        )
      }
      await writeFile(
        join(folder, 'src', file),
        `${await readFile(join(root, 'src', file), 'utf8')}\n${checks.join('')}`,
      )
    }
  } finally {
    await client.end()
  }
  assert.deepEqual(refused, [])
  assert.ok(compared.length > 200, `${compared.length} row types`)
  const errors = await compile()
  assert.deepEqual(
    errors.map(({ place, message }) => `${compared[place]!.file}:${compared[place]!.line} ${message}`),
    [],
  )
  const more = [...Map.groupBy(left, (file) => file)].filter(([file, { length }]) => length > (composed[file] ?? 0))
  assert.deepEqual(more, [])
})

/** The calls of `query` and `queryPrepared` in a file. */
async function readStatements(file: string): Promise<readonly Statement[]> {
  const code = await readFile(join(folder, 'src', file), 'utf8')
  if (!/\.query(Prepared)?\b/.test(code)) return []
  const found: Statement[] = []
  visit(parseSync(file, code).program, undefined)
  return found

  function visit(node: unknown, outer: Node | undefined): void {
    if (Array.isArray(node)) for (const one of node) visit(one, outer)
    if (typeof node !== 'object' || node === null || !('type' in node)) return
    const call = node as Node
    if (call.type === 'CallExpression') add(call, outer)
    for (const [name, value] of Object.entries(call))
      if (name !== 'parent') visit(value, call.type === 'CallExpression' ? call : outer)
  }

  function add(call: Node, outer: Node | undefined): void {
    const { callee } = call
    const isPrepared = callee?.property?.name === 'queryPrepared'
    if (callee?.type !== 'MemberExpression' || !(isPrepared || callee.property?.name === 'query')) return
    const text = call.arguments?.[isPrepared ? 1 : 0]
    if (text === undefined) return
    const isDecoded = outer?.callee?.name === 'rowsOf' || outer?.callee?.name === 'rowOf'
    const [row] = (isDecoded ? outer : call)?.typeArguments?.params ?? []
    found.push({
      file,
      line: code.slice(0, call.start).split('\n').length,
      expression: code.slice(text.start, text.end),
      row: row && code.slice(row.start, row.end),
      isDecoded,
    })
  }
}

/** What is used of a node of the syntax tree. */
type Node = {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly name?: string
  readonly callee?: Node
  readonly property?: Node
  readonly arguments?: readonly Node[]
  readonly typeArguments?: { readonly params: readonly Node[] }
}

async function exposeTexts(file: string, statements: readonly Statement[]): Promise<void> {
  const path = join(folder, 'src', file)
  const thunks = statements.map(({ expression }) => `() => (${expression})`)
  await writeFile(
    path,
    `${await readFile(path, 'utf8')}\nexport const statementsOfFile: (() => unknown)[] = [\n${thunks.join(',\n')}]\n`,
  )
}

/** The texts, computed by the file itself. Undefined for a text with variables of the function around it. */
async function readTexts(file: string): Promise<readonly (string | undefined)[]> {
  const { statementsOfFile } = await import(pathToFileURL(join(folder, 'src', file)).href)
  return (statementsOfFile as (() => unknown)[]).map((compute) => {
    try {
      const text = compute()
      return typeof text === 'string' ? text : undefined
    } catch (error) {
      if (error instanceof ReferenceError) return undefined
      throw error
    }
  })
}

type Column = { readonly name: string; readonly type: string }

/** The types that `database.ts` parses the types of PostgreSQL into. */
const typeOf: Readonly<Record<number, string>> = {
  16: 'boolean',
  17: 'Buffer',
  20: 'bigint',
  21: 'number',
  23: 'number',
  700: 'number',
  701: 'number',
  1184: 'Date',
  1000: 'readonly boolean[]',
  1001: 'readonly Buffer[]',
  1005: 'readonly number[]',
  1007: 'readonly number[]',
  1016: 'readonly bigint[]',
  1022: 'readonly number[]',
  1185: 'readonly Date[]',
  1009: 'readonly string[]',
  2951: 'readonly string[]',
  114: 'Json',
  3802: 'Json',
}

/** Prepares a statement, without running it. */
async function describe(client: pg.Client, text: string): Promise<readonly Column[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly Column[]>()
  let columns: readonly Column[] = []
  client.query({
    submit(connection: pg.Connection) {
      connection.parse({ name: '', text, types: [] }, true)
      connection.describe({ type: 'S', name: '' }, true)
      connection.sync()
    },
    handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }) {
      columns = fields.map(({ name, dataTypeID }) => ({ name, type: typeOf[dataTypeID] ?? 'string' }))
    },
    handleError: reject,
    handleReadyForQuery() {
      resolve(columns)
    },
  } as unknown as pg.Submittable)
  return promise
}

function decoded(column: string): string {
  return column.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
}

type CompilerError = { readonly place: number; readonly message: string }

/** The errors of the added types. */
async function compile(): Promise<readonly CompilerError[]> {
  await writeFile(join(folder, 'src', 'differences.d.ts'), differences)
  const { compilerOptions } = JSON.parse(await readFile(join(root, 'tsconfig.json'), 'utf8'))
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['src'] }))
  const tsc = join(root, 'node_modules/.bin/tsc')
  const output = await promisify(execFile)(tsc, ['--noEmit', '--pretty', 'false', '--checkers', '1', '-p', folder], {
    maxBuffer: 64 * 1024 * 1024,
  }).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  )
  const lines = output.split('\n').filter((line) => line.includes(': error '))
  return Promise.all(
    lines.map(async (line) => {
      const [, path, number, message] = /^(.*?)\((\d+),\d+\): error (.*)$/.exec(line)!
      const code = (await readFile(join(folder, path!.replace(/^.*?src\//, 'src/')), 'utf8')).split('\n')
      const place = /^type _(\d+) = /.exec(code[Number(number) - 1]!)?.[1]
      assert.ok(place !== undefined, line)
      return { place: Number(place), message: message! }
    }),
  )
}

const differences = `
type Json = unknown
type Fits<Difference extends 'none'> = Difference
type Differences<Columns, Row> =
  [Exclude<keyof Row, keyof Columns>] extends [never]
    ? [Exclude<keyof Columns, keyof Row>] extends [never]
      ? [WrongTypes<Columns, Row>] extends [never]
        ? 'none'
        : { other_type: WrongTypes<Columns, Row> }
      : { not_in_row_type: Exclude<keyof Columns, keyof Row> }
    : { not_selected: Exclude<keyof Row, keyof Columns> }
type WrongTypes<Columns, Row> = {
  [Name in keyof Columns]: [Exclude<Row[Name & keyof Row], null | undefined>] extends [Columns[Name]] ? never : Name
}[keyof Columns]
`
