/**
 * PostgreSQL array literals. The driver would convert element by element through its generic value mapping; a batch
 * carries thousands of elements, and joining them here costs a tenth of that.
 */

/** For elements whose text needs no quoting: numbers, bigints, booleans and UUIDs. */
export function plainArray(values: readonly (number | bigint | boolean | string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : value)).join(',')}}`
}

/** For free text. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : quote(value))).join(',')}}`
}

// A text cannot contain NUL in PostgreSQL: it becomes the replacement character.
function quote(value: string): string {
  return `"${value.replaceAll('\0', '\uFFFD').replace(/["\\]/g, '\\$&')}"`
}
