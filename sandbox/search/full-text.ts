import type { Document, Section } from './documents.ts'

export type Match = { readonly document: Document; readonly section: Section; readonly score: number }

type Entry = {
  readonly document: Document
  readonly section: Section
  readonly counts: ReadonlyMap<string, number>
  /** Words of the title and the heading, with their weights. */
  readonly named: ReadonlyMap<string, number>
  readonly length: number
}

// The usual constants of BM25: how soon repetitions stop counting, and how much a long text is penalized.
const saturation = 1.2
const lengthWeight = 0.75
const titleWeight = 2
const headingWeight = 1

const emptyWords = new Set(
  'a an and are as at be by can does for from how i in is it of on or that the this to was what when where which who why will with you'.split(
    ' ',
  ),
)

/** Full-text search over sections, ranked by BM25. Returns the best section of each document. */
export function createFullText(documents: readonly Document[]): (query: string) => readonly Match[] {
  const entries = documents.flatMap((document) => document.sections.map((section) => toEntry(document, section)))
  const averageLength = entries.reduce((sum, entry) => sum + entry.length, 0) / entries.length
  const holding = new Map<string, number>()
  for (const { counts } of entries) for (const word of counts.keys()) holding.set(word, (holding.get(word) ?? 0) + 1)
  const rarity = (word: string) => {
    const having = holding.get(word) ?? 0
    return Math.log(1 + (entries.length - having + 0.5) / (having + 0.5))
  }
  return (query) => {
    const words = [...new Set(toWords(query))]
    const matches = entries.map((entry) => ({ ...entry, score: scoreOf(entry, words, rarity, averageLength) }))
    const best = matches.filter(({ score }) => score > 0).sort((one, other) => other.score - one.score)
    return best.filter(({ document }, index) => best.findIndex((match) => match.document === document) === index)
  }
}

function toEntry(document: Document, section: Section): Entry {
  const words = toWords(section.text)
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  const named = new Map(toWords(section.heading).map((word) => [word, headingWeight]))
  for (const word of toWords(document.title)) named.set(word, titleWeight)
  return { document, section, counts, named, length: words.length }
}

/** A word in a title says what the page is about: it adds a fixed score, whatever the length of the page. */
function scoreOf(
  { counts, named, length }: Entry,
  words: readonly string[],
  rarity: (word: string) => number,
  averageLength: number,
): number {
  const penalty = saturation * (1 - lengthWeight + (lengthWeight * length) / averageLength)
  return words.reduce((score, word) => {
    const times = counts.get(word) ?? 0
    return score + rarity(word) * ((times * (saturation + 1)) / (times + penalty) + (named.get(word) ?? 0))
  }, 0)
}

/** Lower-case words without their most common endings, so that "refunds" finds "refunded". */
function toWords(text: string): string[] {
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
  return words
    .filter((word) => !emptyWords.has(word))
    .map((word) => (word.length > 4 ? word.replace(/(?:ing|ed|es|s)$/, '') : word))
}
