type RawRow = Readonly<Record<string, unknown>>

/**
 * The rows of a query under our names: columns in snake_case become camelCase, null becomes undefined. `Row` states what the statement
 * selects; `statements.test.ts` compares it with the database. An amount is `Usdc` where `Row` says so: both are bigint.
 */
export async function rowsOf<Row>(query: Promise<readonly RawRow[]>): Promise<Row[]> {
  const rows = await query
  const columns = Object.keys(rows[0] ?? {})
  const names = columns.map(nameOf)
  return rows.map((raw) => {
    const row: Record<string, unknown> = {}
    for (let index = 0; index < columns.length; index += 1) row[names[index]!] = raw[columns[index]!] ?? undefined
    return row as Row
  })
}

/** The first row; undefined when there is none. */
export async function rowOf<Row>(query: Promise<readonly RawRow[]>): Promise<Row | undefined> {
  return (await rowsOf<Row>(query))[0]
}

const known = new Map<string, string>()

function nameOf(column: string): string {
  let name = known.get(column)
  if (name === undefined) {
    name = column.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
    known.set(column, name)
  }
  return name
}
