/**
 * PostgreSQL array literals. The driver would convert element by element through its generic value mapping. A batch carries
 * thousands of elements, and joining them here costs a tenth of that.
 */

/** For elements whose text needs no quoting: numbers, bigints, booleans and UUIDs. */
export function plainArray(values: readonly (number | bigint | boolean | string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : value)).join(',')}}`
}

/** For free text. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : quote(value))).join(',')}}`
}

export type Field = number | bigint | boolean | string | Buffer | null | undefined

/** An array of rows of a composite type, each with its fields in the order of the type. */
export function rowArray(rows: readonly (readonly Field[])[]): string {
  return `{${rows.map((row) => quote(rowLiteral(row))).join(',')}}`
}

/** One row of a composite type. */
export function rowLiteral(row: readonly Field[]): string {
  return `(${row.map(fieldText).join(',')})`
}

// An empty field is null. Fields with characters of the row syntax are quoted.
function fieldText(field: Field): string {
  if (field === null || field === undefined) return ''
  if (typeof field === 'string') return /^[\w.:/-]+$/.test(field) ? field : `"${field.replace(/["\\]/g, '$&$&')}"`
  return Buffer.isBuffer(field) ? `"\\\\x${field.toString('hex')}"` : String(field)
}

// PostgreSQL text cannot contain NUL: it is replaced by the replacement character.
function quote(value: string): string {
  return `"${value.replaceAll('\0', '\uFFFD').replace(/["\\]/g, '\\$&')}"`
}
