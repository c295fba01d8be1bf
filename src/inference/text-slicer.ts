import { isLowSurrogate, isSpaceUnit } from './cut-runs.ts'

const lookBackMax = 512
const space = 0x20

/**
 * Splits texts into slices of at most `charactersMax` characters. A long text is split before a word, where the tokenizer never
 * merges across: the slices together have as many tokens as the whole. If no word begins nearby, the text is split anywhere but
 * inside a character.
 */
export class TextSlicer {
  readonly #texts: readonly string[]
  readonly #charactersMax: number
  #index = 0
  #from = 0
  #next: readonly string[] | undefined

  constructor(texts: readonly string[], charactersMax: number) {
    this.#texts = texts
    this.#charactersMax = charactersMax
    this.advance()
  }

  /** The current slice; undefined when none is left. */
  get next(): readonly string[] | undefined {
    return this.#next
  }

  advance(): void {
    const slice: string[] = []
    let left = this.#charactersMax
    for (let text = this.#texts[this.#index]; text !== undefined && left > 0; text = this.#texts[this.#index]) {
      const rest = text.length - this.#from
      if (rest <= left) {
        if (rest > 0) slice.push(text.slice(this.#from))
        left -= rest
        this.#index += 1
        this.#from = 0
        continue
      }
      // Several short texts share a slice. A long text starts its own.
      if (slice.length === 0) {
        const to = cutBefore(text, this.#from, this.#from + left)
        slice.push(text.slice(this.#from, to))
        this.#from = to
      }
      break
    }
    this.#next = slice.length === 0 ? undefined : slice
  }
}

function cutBefore(text: string, from: number, to: number): number {
  for (let at = to; at > Math.max(from + 1, to - lookBackMax); at -= 1) if (isWordStart(text, at)) return at
  return isLowSurrogate(text.charCodeAt(to)) ? to - 1 : to
}

/** A single space between two non-spaces: no match of the tokenizer's pattern continues across it. */
function isWordStart(text: string, at: number): boolean {
  return (
    text.charCodeAt(at) === space &&
    !isSpaceUnit(text.charCodeAt(at - 1)) &&
    at + 1 < text.length &&
    !isSpaceUnit(text.charCodeAt(at + 1))
  )
}
