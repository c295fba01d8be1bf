import MarkdownIt, { type Token } from 'markdown-it'

export type { Token } from 'markdown-it'

const nestingMax = 20

/** The output of a model is untrusted: HTML is not allowed, and links only to the web or to a mail address. */
const parser = new MarkdownIt({ html: false, linkify: true, typographer: false, maxNesting: nestingMax })
parser.validateLink = (address) => /^(?:https?:\/\/|mailto:)/i.test(address.trim())
// Links only complete URLs: `example.md` is usually a file, not a host.
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false })

/** One block of the text on the outermost level, such as a paragraph, a list or a table. */
export type Block = { readonly key: number; readonly source: string; readonly tokens: readonly Token[] }

/** The blocks of a text that is still being written, and where its last one begins. */
export type Parsed = { readonly text: string; readonly blocks: readonly Block[] }

export const nothingParsed: Parsed = { text: '', blocks: [] }

/**
 * Parses a text that grows at its end. All blocks but the last are reused, so that a long answer costs
 * no more per piece than a short one.
 */
export function parseGrowing(text: string, before: Parsed): Parsed {
  const kept = text.startsWith(before.text) ? before.blocks.slice(0, -1) : []
  const start = kept.reduce((length, { source }) => length + source.length, 0)
  return { text, blocks: [...kept, ...parseBlocks(text.slice(start), kept.length)] }
}

function parseBlocks(text: string, firstKey: number): Block[] {
  const tokens = parser.parse(text, {})
  const lines = text.split(/(?<=\n)/)
  const groups = outermost(tokens)
  const starts = groups.map((group, at) => (at === 0 ? 0 : group[0]!.map![0]))
  return groups.map((group, at) => ({
    key: firstKey + at,
    source: lines.slice(starts[at], starts[at + 1]).join(''),
    tokens: group,
  }))
}

/** The tokens of each outermost block. */
function outermost(tokens: readonly Token[]): readonly (readonly Token[])[] {
  const groups: Token[][] = []
  let depth = 0
  for (const token of tokens) {
    if (depth === 0) groups.push([])
    groups.at(-1)!.push(token)
    depth += token.nesting
  }
  return groups
}
