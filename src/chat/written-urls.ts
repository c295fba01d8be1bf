import { isSpaceUnit } from '../inference/cut-runs.ts'

/** A URL in running text, and where it begins. */
export type WrittenUrl = { readonly index: number; readonly url: string }

const urlCharactersMax = 2_000
/** The DNS limit. */
const hostCharactersMax = 253

/**
 * Finds URLs as people and models write them, with or without a scheme. Looks at every character a bounded number of times, without
 * a regular expression: this runs on the event loop over text that customers choose, and a pattern that backtracks over `a-a-a-…`
 * stalls every other request.
 */
export function* findWrittenUrls(text: string): Generator<WrittenUrl, void, undefined> {
  const marks = new UrlMarks(text)
  let from = 0
  for (let mark = marks.next(from); mark !== -1; mark = marks.next(from)) {
    const run = runAround(text, mark, from)
    const index = startOfUrl(text, run)
    if (index !== undefined) yield { index, url: trimUrl(text.slice(index, run.end)) }
    from = run.end
  }
}

/**
 * Positions that a URL must contain: a dot or `://`. Each is searched for once, so that many of one do not repeat the search for
 * the other.
 */
class UrlMarks {
  readonly #text: string
  #dot: number
  #scheme: number

  constructor(text: string) {
    this.#text = text
    this.#dot = text.indexOf('.')
    this.#scheme = text.indexOf('://')
  }

  /** The first position at or after `from`; -1 when there is none. */
  next(from: number): number {
    if (this.#dot !== -1 && this.#dot < from) this.#dot = this.#text.indexOf('.', from)
    if (this.#scheme !== -1 && this.#scheme < from) this.#scheme = this.#text.indexOf('://', from)
    if (this.#dot === -1 || this.#scheme === -1) return Math.max(this.#dot, this.#scheme)
    return Math.min(this.#dot, this.#scheme)
  }
}

type Run = { readonly start: number; readonly end: number }

/**
 * The characters around a position that may be part of one URL, not before `from`. Bounded both ways: otherwise long runs would be
 * read repeatedly.
 */
function runAround(text: string, mark: number, from: number): Run {
  const first = Math.max(from, mark - hostCharactersMax)
  let start = mark
  while (start > first && isUrlUnit(text.charCodeAt(start - 1))) start -= 1
  const last = Math.min(text.length, mark + urlCharactersMax)
  let end = mark + 1
  while (end < last && isUrlUnit(text.charCodeAt(end))) end += 1
  return { start, end }
}

/** Where a URL begins in a run: at `http://`, `https://`, or the first name with a dot in it such as `example.com`. */
function startOfUrl(text: string, { start, end }: Run): number | undefined {
  let nameStart = start
  for (let at = start; at < end; at += 1) {
    const unit = text.charCodeAt(at)
    if (unit === colon && text.startsWith('://', at)) {
      const scheme = schemeBefore(text, start, at)
      if (scheme !== undefined) return scheme
    }
    if (at === nameStart ? !is(inWord, unit) : !is(inName, unit) && unit !== dot) nameStart = at + 1
    else if (unit === dot && isTopLevelAt(text, at + 1, end)) return nameStart
  }
  return undefined
}

function schemeBefore(text: string, start: number, at: number): number | undefined {
  for (const scheme of ['https', 'http']) {
    const index = at - scheme.length
    if (index >= start && text.slice(index, at).toLowerCase() === scheme) return index
  }
  return undefined
}

/** Two letters or more, and then something else: `.com` in `example.com/a`, but not `.5` in `1.5`. */
function isTopLevelAt(text: string, from: number, end: number): boolean {
  let at = from
  while (at < end && is(letter, text.charCodeAt(at))) at += 1
  return at - from >= 2 && !(at < end && is(inWord, text.charCodeAt(at)))
}

const punctuation = '.,;:!?*_~'

/** Removes the punctuation of the sentence around it, and everything from a closing bracket that the URL did not open. */
function trimUrl(found: string): string {
  let depth = 0
  let end = 0
  for (; end < found.length; end += 1) {
    if (found[end] === '(') depth += 1
    if (found[end] === ')' && --depth < 0) break
  }
  while (end > 0 && punctuation.includes(found[end - 1]!)) end -= 1
  return found.slice(0, end)
}

const dot = 0x2e
const colon = 0x3a

// What an ASCII character can be part of. A table, because this looks at every character of megabytes of text.
const inUrl = 1
const inName = 2
const inWord = 4
const letter = 8
const kinds = Uint8Array.from({ length: 128 }, (_, unit) => kindOf(String.fromCharCode(unit)))

function kindOf(character: string): number {
  if (/[a-z]/i.test(character)) return inUrl | inName | inWord | letter
  if (/\w/.test(character)) return inUrl | inName | inWord
  if (character === '-') return inUrl | inName
  return character <= ' ' || '<>"\'`]}|\\^'.includes(character) ? 0 : inUrl
}

function isUrlUnit(unit: number): boolean {
  return unit < 128 ? kinds[unit]! !== 0 : !isSpaceUnit(unit)
}

function is(kind: number, unit: number): boolean {
  return unit < 128 && (kinds[unit]! & kind) !== 0
}
