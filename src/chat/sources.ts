import type { Annotation } from '../inference/chat-events.ts'
import type { Message } from '../inference/chat-messages.ts'

// A URL as people and models write it, with or without its scheme, up to what cannot be part of one in running text. All
// repetitions are bounded: a message of megabytes must not take minutes to look through.
const written = /(?:https?:\/\/|\b(?=[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[a-z]{2,63}\b))[^\s<>"'`\]}|\\^]{1,2000}/giu
const citationsMax = 100

/**
 * The addresses that a request may read, and the pages that its answer can cite. An address is allowed when the customer wrote
 * it, or when one of our tools returned it as a result. What merely stands in the text of a page is not: a page
 * must not be able to send the model anywhere.
 */
export class Sources {
  readonly #allowed: Set<string>
  readonly #titles = new Map<string, { readonly url: string; readonly title: string }>()

  constructor(messages: readonly Message[]) {
    this.#allowed = new Set(messages.filter(isCustomers).flatMap(textsOf).flatMap(findUrls).map(keyOf))
  }

  allows(url: string): boolean {
    const key = keyOf(url)
    return key !== '' && this.#allowed.has(key)
  }

  /** A page that one of our tools returned. */
  add(url: string, title: string | undefined): void {
    const key = keyOf(url)
    if (key === '') return
    this.#allowed.add(key)
    const known = this.#titles.get(key)
    this.#titles.set(key, { url: known?.url ?? url, title: title || known?.title || '' })
  }

  /** Where a text refers to these pages, by link or by address. `start` is where the text begins in the answer. */
  citationsIn(text: string, start: number): readonly Annotation[] {
    if (this.#titles.size === 0) return []
    const found: Annotation[] = []
    for (const match of text.matchAll(written)) {
      if (found.length >= citationsMax) break
      const address = trimUrl(match[0])
      const source = this.#titles.get(keyOf(address))
      if (source === undefined) continue
      const [from, to] = linkAround(text, match.index, match.index + address.length)
      found.push({ ...source, startIndex: start + from, endIndex: start + to })
    }
    return found
  }
}

function isCustomers({ role }: Message): boolean {
  return role === 'user' || role === 'system' || role === 'developer'
}

function textsOf({ content }: Message): readonly string[] {
  if (content === undefined) return []
  return typeof content === 'string' ? [content] : content
}

function findUrls(text: string): readonly string[] {
  return Array.from(text.matchAll(written), ([found]) => trimUrl(found))
}

const punctuation = '.,;:!?*_~'

/** Without the sentence around it: its punctuation, and everything from a closing bracket on that the address did not open. */
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

/** What two spellings of one page's address share; empty for what is no address. Credentials in it are nobody's wish. */
function keyOf(address: string): string {
  const url = URL.parse(/^https?:\/\//i.test(address) ? address : `https://${address}`)
  if (url === null || url.username !== '' || url.password !== '') return ''
  return `${url.host}${url.pathname.replace(/\/$/, '')}${url.search}`
}

/** The whole Markdown link when the address is the target of one. */
function linkAround(text: string, from: number, to: number): readonly [from: number, to: number] {
  if (text.slice(from - 2, from) !== '](' || text[to] !== ')') return [from, to]
  const opening = text.lastIndexOf('[', from - 2)
  return opening === -1 || text.slice(opening, from).includes('\n') ? [from, to] : [opening, to + 1]
}
