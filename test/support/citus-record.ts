import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'

// `npm run test:citus` needs a cluster that few machines have, and one PostgreSQL runs what Citus refuses without complaint. So a whole run
// leaves a record in the repository, and `npm run check` says when SQL has changed since.

const record = new URL('../citus.json', import.meta.url)
const root = new URL('../../', import.meta.url)

export type CitusRun = {
  readonly date: string
  readonly citus: string
  readonly postgres: string
  readonly workers: number
  readonly passed: number
  readonly failed: readonly string[]
}

export function writeCitusRun(run: CitusRun): void {
  writeFileSync(record, `${JSON.stringify({ ...run, sqlSha256: hashOfSql() }, undefined, 2)}\n`)
}

/** What `npm run check` says of it; undefined when the last whole run passed with the SQL of now. */
export function describeCitusRun(): string | undefined {
  const { date, failed, sqlSha256 } = JSON.parse(readFileSync(record, 'utf8')) as CitusRun & { sqlSha256: string }
  if (sqlSha256 !== hashOfSql())
    return `SQL has changed since the run of ${date}. Run npm run test:citus before a release.`
  return failed.length === 0 ? undefined : `${failed.length} tests failed in the run of ${date}: ${failed.join('; ')}`
}

/** Over the migrations, and the texts in `src/` that look like statements. Comments and white space do not count. */
export function hashOfSql(): string {
  const hash = createHash('sha256')
  for (const name of filesOf('migrations', '.sql')) hash.update(`${name}\0${plain(read(`migrations/${name}`))}\0`)
  for (const name of filesOf('src', '.ts').filter((file) => !file.endsWith('.test.ts'))) {
    const code = read(`src/${name}`)
    const texts = [...code.matchAll(/`(?:[^`\\]|\\.)*`|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g)].map(([text]) =>
      plain(text),
    )
    const statements = texts.filter((text) => /\b(select|insert into|update|delete from)\b.*\s/.test(text))
    if (statements.length > 0) hash.update(`${name}\0${statements.join('\0')}\0`)
  }
  return hash.digest('hex')
}

function filesOf(folder: string, ending: string): readonly string[] {
  const names = readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
  return names.filter((name) => name.endsWith(ending)).sort()
}

function read(path: string): string {
  return readFileSync(new URL(path, root), 'utf8')
}

function plain(sql: string): string {
  return sql.replaceAll(/--.*$/gm, '').replaceAll(/\s+/g, ' ').trim()
}
