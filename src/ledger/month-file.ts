import { createHash } from 'node:crypto'
import { readLines } from '../receipts/read-lines.ts'
import { endOfMonth, type Month, startOfMonth } from './month.ts'
import { type RequestId, timeOf } from './request-id.ts'

// The requests of one month as JSON lines, written and verified in constant memory:
//
//   {"object":"month","version":1,"month":"2026-09"}
//   {"n":1,"hash":"…","row":{…}}             requests in the order of partition and id; refused ones are left out
//   {"object":"seal","month":"2026-09","requests":"2","charged_atomic":"950","root":"…"}
//
// `hash` is SHA-256(hash of the line before ‖ text of `row`), in hex; before the first row stands SHA-256("penny month 1 2026-09").
// `root` is the last hash. The hash of every line lets a reader name the rows that were changed, not only that some were.

const version = 1

/** The totals of a sealed month. */
export type MonthSeal = {
  readonly month: Month
  readonly requests: number
  readonly charged: bigint
  /** Hex. */
  readonly root: string
}

/** Sums and hash-chains the rows of a month, in order. */
export class MonthChain {
  readonly #month: Month
  #requests = 0
  #charged = 0n
  #hash: string

  constructor(month: Month) {
    this.#month = month
    this.#hash = firstHash(month)
  }

  /** Returns the hash up to this row. */
  add(row: MonthRow): string {
    this.#requests += 1
    this.#charged += BigInt(row.charged)
    this.#hash = nextHash(this.#hash, row.text)
    return this.#hash
  }

  get seal(): MonthSeal {
    return { month: this.#month, requests: this.#requests, charged: this.#charged, root: this.#hash }
  }
}

/** An archived request: its JSON and its charge. */
export type MonthRow = { readonly text: string; readonly charged: string | bigint }

/** The text of the file, in chunks of whole lines. Returns the seal. */
export async function* writeMonth(
  month: Month,
  pages: AsyncIterable<readonly MonthRow[]>,
): AsyncGenerator<string, MonthSeal> {
  const chain = new MonthChain(month)
  yield `${JSON.stringify({ object: 'month', version, month })}\n`
  for await (const rows of pages) {
    yield rows
      .map((row) => {
        const hash = chain.add(row)
        return `{"n":${chain.seal.requests},"hash":"${hash}","row":${row.text}}\n`
      })
      .join('')
  }
  const { requests, charged, root } = chain.seal
  const sums = { requests: requests.toString(), charged_atomic: charged.toString(), root }
  yield `${JSON.stringify({ object: 'seal', month, ...sums })}\n`
  return chain.seal
}

export type MonthReport = {
  readonly month: Month
  /** Computed from the rows. */
  readonly seal: MonthSeal
  readonly isWhole: boolean
  /** The first hundred problems, by line. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

const problemsMax = 100

/**
 * Recomputes every hash and sum of an archived month, offline. Names each row that was changed, left out, added or moved. Throws an
 * InvalidReceiptError when a line is not text, and an InvalidMonthError when the file is something else.
 */
export async function verifyMonth(
  chunks: AsyncIterable<Uint8Array>,
  onProgress: (rows: number) => void = () => {},
): Promise<MonthReport> {
  let reader: MonthReader | undefined
  let lineNumber = 0
  for await (const lines of readLines(chunks)) {
    for (const line of lines) {
      lineNumber += 1
      if (reader === undefined) reader = new MonthReader(readMonth(line))
      else reader.take(line, lineNumber)
    }
    if (reader !== undefined) onProgress(reader.rows)
  }
  if (reader === undefined) throw new InvalidMonthError('The file is empty.')
  return reader.finish()
}

function readMonth(line: string): Month {
  const value = parse(line)
  if (value?.object !== 'month') throw new InvalidMonthError('The file is not an archived month.')
  if (value.version !== version) throw new InvalidMonthError('The file has another version than this program reads.')
  return value.month as Month
}

const rowLine = /^\{"n":(\d{1,15}),"hash":"([0-9a-f]{64})","row":(\{.*\})\}$/

class MonthReader {
  readonly #month: Month
  /** The hash chain computed from the rows. */
  readonly #chain: MonthChain
  readonly #problems: string[] = []
  #problemCount = 0
  /** The hash in the file's previous line. */
  #stated: string
  #next = 1
  #lastPlace = ''
  #seal: Fields | undefined

  constructor(month: Month) {
    this.#month = month
    this.#chain = new MonthChain(month)
    this.#stated = firstHash(month)
  }

  get rows(): number {
    return this.#chain.seal.requests
  }

  take(line: string, lineNumber: number): void {
    const problem = (text: string) => this.#report(`line ${lineNumber}: ${text}`)
    const [, number, hash, text] = rowLine.exec(line) ?? []
    if (this.#seal !== undefined) problem('it comes after the seal')
    else if (text !== undefined) this.#takeRow({ number: Number(number), hash: hash!, text }, problem)
    else if (parse(line)?.object === 'seal') this.#seal = parse(line)
    else problem('it is neither a request nor the seal; the file may be cut off')
  }

  #takeRow({ number, hash, text }: StatedRow, problem: (text: string) => void): void {
    const row = parse(text)
    const charged = typeof row?.charged === 'string' && /^\d{1,19}$/.test(row.charged) ? row.charged : undefined
    if (row === undefined || charged === undefined) problem(`row ${number} cannot be read`)
    this.#chain.add({ text, charged: charged ?? '0' })
    if (number < this.#next) {
      problem(`row ${number} was added, or is out of order`)
      return
    }
    if (number > this.#next) {
      const missing = number - this.#next === 1 ? `row ${this.#next} is` : `rows ${this.#next} to ${number - 1} are`
      problem(`${missing} missing`)
    } else if (nextHash(this.#stated, text) !== hash) problem(`row ${number} was changed`)
    this.#stated = hash
    this.#next = number + 1
    if (row !== undefined) this.#checkPlace(row, number, problem)
  }

  #checkPlace({ partition, id }: Fields, number: number, problem: (text: string) => void): void {
    const place = `${String(partition).padStart(5, '0')} ${id}`
    if (place <= this.#lastPlace) problem(`row ${number} is not in the order of partition and id`)
    this.#lastPlace = place
    const ms = timeOf(String(id) as RequestId)
    if (!(ms >= startOfMonth(this.#month).getTime() && ms < endOfMonth(this.#month).getTime())) {
      problem(`row ${number} is not of ${this.#month}`)
    }
  }

  finish(): MonthReport {
    const { seal } = this.#chain
    const stated = this.#seal
    if (stated === undefined) this.#report('the seal is missing: the file is cut off')
    else {
      const compare = (name: string, said: unknown, found: string) => {
        if (said !== found) this.#report(`the seal says ${name} ${String(said).slice(0, 80)}; the rows give ${found}`)
      }
      compare('month', stated.month, this.#month)
      compare('requests', stated.requests, seal.requests.toString())
      compare('charged_atomic', stated.charged_atomic, seal.charged.toString())
      compare('root', stated.root, seal.root)
    }
    const [problems, problemCount] = [this.#problems, this.#problemCount]
    return { month: this.#month, seal, isWhole: problemCount === 0, problems, problemCount }
  }

  #report(problem: string): void {
    this.#problemCount += 1
    if (this.#problems.length < problemsMax) this.#problems.push(problem)
  }
}

type StatedRow = { readonly number: number; readonly hash: string; readonly text: string }
type Fields = Readonly<Record<string, unknown>>

function parse(text: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Fields) : undefined
  } catch {
    return undefined
  }
}

function firstHash(month: Month): string {
  return createHash('sha256').update(`penny month ${version} ${month}`).digest('hex')
}

function nextHash(hash: string, text: string): string {
  return createHash('sha256').update(hash, 'hex').update(text).digest('hex')
}

/** The file cannot be verified at all. */
export class InvalidMonthError extends Error {}
