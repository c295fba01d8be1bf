import { countTokens as countEncoded, decodeGenerator, encode } from 'gpt-tokenizer/encoding/o200k_base'

/** The tokenizer takes quadratic time for a run without a break: longer runs are split first. */
const runLengthMax = 256
const longRun = new RegExp(`\\S{${runLengthMax}}(?=\\S)|\\s{${runLengthMax}}(?=\\s)`, 'gu')

// By default the tokenizer throws on text such as `<|endoftext|>`; in a customer's message that is ordinary text.
const asPlainText = { disallowedSpecial: new Set<string>() }

/** Each word is one o200k token with a space before it, so any sequence of them has a known length. */
const words =
  'the small model reads your words and then writes a calm answer about them with no hurry because it has only one job here'.split(
    ' ',
  )

export function countTokens(text: string): number {
  return cutLongRuns(text).reduce((sum, piece) => sum + countEncoded(piece, asPlainText), 0)
}

/**
 * One string per token; joined they are the text. A character that needs several tokens is returned with the last of them; the
 * others are empty strings.
 */
export function splitTokens(text: string): string[] {
  const pieces: string[] = []
  function* counted(tokens: readonly number[]): Generator<number> {
    for (const token of tokens) {
      pieces.push('')
      yield token
    }
  }
  for (const run of cutLongRuns(text)) {
    for (const piece of decodeGenerator(counted(encode(run, asPlainText)))) pieces[pieces.length - 1] = piece
  }
  return pieces
}

/** Exactly this many tokens of readable filler, each with a leading space, which keeps neighbours from merging. */
export function wordTokens(count: number): string[] {
  return Array.from({ length: count }, (_, index) => ` ${words[index % words.length]}`)
}

function cutLongRuns(text: string): string[] {
  const wellFormed = text.toWellFormed()
  if (wellFormed.length <= runLengthMax) return [wellFormed]
  const pieces: string[] = []
  let start = 0
  for (const match of wellFormed.matchAll(longRun)) {
    const end = match.index + match[0].length
    pieces.push(wellFormed.slice(start, end))
    start = end
  }
  pieces.push(wellFormed.slice(start))
  return pieces
}
