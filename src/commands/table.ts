import { isUuid } from '../db/uuid.ts'
import type { Output } from './command.ts'

export type Row = Readonly<Record<string, string | number | null>>

export type TableOptions = {
  /** Columns that are left out on a narrow terminal, least important first. */
  readonly omit?: readonly string[]
}

const gap = 2
const textWidthMin = 8

/**
 * Prints rows: as a JSON array for programs, as a table for people. A pipe gets full values. A terminal gets short ids and times,
 * and no more columns than fit.
 */
export function printRows(output: Output, rows: readonly Row[], { omit = [] }: TableOptions = {}): void {
  if (output.json) {
    output.write(`${JSON.stringify(rows, null, 2)}\n`)
    return
  }
  const [first] = rows
  if (first === undefined) {
    output.write('None yet.\n')
    return
  }
  const all = Object.keys(first).map((name) => readColumn(name, rows, output.width !== undefined))
  const columns = output.width === undefined ? all : fit(all, output.width, omit)
  for (let line = -1; line < rows.length; line += 1) {
    const cells = columns.map((column) => {
      const cell = line < 0 ? column.title : column.cells[line]!
      const space = ' '.repeat(Math.max(0, column.width - widthOf(cell)))
      return column.isNumber ? `${space}${cell}` : `${cell}${space}`
    })
    const text = cells.join(' '.repeat(gap)).trimEnd()
    output.write(line < 0 && output.color ? `\x1b[1m${text}\x1b[0m\n` : `${text}\n`)
  }
}

type Column = {
  readonly name: string
  readonly title: string
  readonly cells: readonly string[]
  readonly isNumber: boolean
  readonly width: number
}

function readColumn(name: string, rows: readonly Row[], isShort: boolean): Column {
  const values = rows.map((row) => row[name] ?? null)
  const present = values.filter((value) => value !== null).map(String)
  const isNumber = present.length > 0 && present.every((value) => /^-?\d+(\.\d+)?$/.test(value))
  // Amounts in a column have the same number of decimals.
  const decimals = isNumber ? Math.max(...present.map((value) => value.split('.')[1]?.length ?? 0)) : 0
  const cells = values.map((value) => {
    if (value === null) return '–'
    if (isNumber) return withDecimals(String(value), decimals)
    // Customers choose names, so control characters are replaced: they could move the cursor.
    const text = String(value).replaceAll(/\p{Cc}/gu, '\uFFFD')
    return isShort ? shorten(text) : text
  })
  const title = name.replaceAll('_', ' ')
  return { name, title, cells, isNumber, width: Math.max(...[title, ...cells].map(widthOf)) }
}

/** Pads a number with zeros to this many decimals. */
export function withDecimals(text: string, decimals: number): string {
  if (decimals === 0) return text
  const [whole = '', fraction = ''] = text.split('.')
  return `${whole}.${fraction.padEnd(decimals, '0')}`
}

/** Shortens ids, whose beginning every command accepts, and times, for which minutes are exact enough. */
function shorten(text: string): string {
  if (isUuid(text)) return text.slice(0, 8)
  if (/^\d{4}-\d{2}-\d{2}T[\d:.]+Z$/.test(text)) return text.slice(0, 16).replace('T', ' ')
  return text
}

/** Drops optional columns until the rest fits, then truncates the widest text. */
function fit(all: readonly Column[], width: number, omit: readonly string[]): readonly Column[] {
  const spared = [...omit]
  let columns = all.filter(({ name, cells }) => !(omit.includes(name) && cells.every((cell) => cell === '–')))
  while (totalOf(columns) > width && spared.length > 0) {
    const name = spared.shift()
    columns = columns.filter((column) => column.name !== name)
  }
  for (let excess = totalOf(columns) - width; excess > 0; ) {
    const texts = columns.filter((column) => !column.isNumber && column.width > textWidthMin)
    const widest = texts.toSorted((left, right) => right.width - left.width)[0]
    if (widest === undefined) break
    const cut = Math.max(textWidthMin, widest.width - excess)
    const cells = widest.cells.map((cell) => truncate(cell, cut))
    const narrow = { ...widest, title: truncate(widest.title, cut), cells, width: cut }
    columns = columns.map((column) => (column === widest ? narrow : column))
    excess = totalOf(columns) - width
  }
  return columns
}

function totalOf(columns: readonly Column[]): number {
  return columns.reduce((sum, column) => sum + column.width, gap * (columns.length - 1))
}

const graphemes = new Intl.Segmenter()
// Characters that take two columns: Chinese, Japanese, Korean, full-width forms and emoji.
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u

/** The number of terminal columns that a text takes. */
export function widthOf(text: string): number {
  let width = 0
  for (const { segment } of graphemes.segment(text)) width += wide.test(segment) ? 2 : 1
  return width
}

export function truncate(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  let kept = ''
  for (const { segment } of graphemes.segment(text)) {
    if (widthOf(kept) + widthOf(segment) > width - 1) break
    kept += segment
  }
  return `${kept}…`
}
