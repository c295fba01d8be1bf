import { OperatorError } from '../errors.ts'
import { type Field, rowArray, rowLiteral } from './array-literal.ts'
import type { Connection } from './database.ts'

/**
 * A composite type of the database as the parameter of a function, written by name: each column beside the value that it gets. PostgreSQL
 * reads a row by position, so `refuseOtherComposites` compares the columns with the database's when a service starts.
 */
export type Composite<Value> = {
  readonly type: string
  readonly columns: readonly string[]
  row(value: Value): string
  array(values: readonly Value[]): string
}

/** `columns` are in the order of the type. */
export function composite<Value>(
  type: string,
  columns: Readonly<Record<string, (value: Value) => Field>>,
): Composite<Value> {
  const readers = Object.values(columns)
  const fieldsOf = (value: Value) => readers.map((read) => read(value))
  return {
    type,
    columns: Object.keys(columns),
    row: (value) => rowLiteral(fieldsOf(value)),
    array: (values) => rowArray(values.map(fieldsOf)),
  }
}

/** @throws when a type of the database has other columns, or the same ones in another order */
export async function refuseOtherComposites(
  connection: Connection,
  composites: readonly Pick<Composite<never>, 'type' | 'columns'>[],
): Promise<void> {
  for (const { type, columns } of composites) {
    const rows = await connection.query<{ name: string }>(
      `select a.attname as name from pg_attribute a
        where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped order by a.attnum`,
      [type],
    )
    const found = rows.map(({ name }) => name).join(', ')
    const written = columns.join(', ')
    if (found !== written)
      throw new OperatorError(
        `The type ${type} of the database has other columns than this version of penny writes. Database: ${found || 'no such type'}. ` +
          `Written: ${written}. Apply the migrations of this version, or change the composite in the source.`,
      )
  }
}
