import type { Annotation } from '../inference/chat-events.ts'
import type { Message } from '../inference/chat-messages.ts'
import { findWrittenUrls } from './written-urls.ts'

const citationsMax = 100
const addressesMax = 1_000
const messageCharactersMax = 100_000
const requestCharactersMax = 1_000_000
const linkTextMax = 1_000

/**
 * The URLs that a request may fetch, and the pages that its answer can cite. A URL is allowed when the customer wrote it, or when
 * one of our tools returned it as a result. URLs inside the text of a page are not: a page must not be able to send the model
 * anywhere. Only the first 100,000 characters of a message and the first 1,000 URLs count.
 */
export class Sources {
  readonly #allowed: Set<string>
  readonly #titles = new Map<string, { readonly url: string; readonly title: string }>()

  constructor(messages: readonly Message[]) {
    const addresses = searchedTexts(messages).flatMap(findWrittenUrls)
    this.#allowed = new Set(addresses.take(addressesMax).map(({ url }) => keyOf(url)))
  }

  allows(url: string): boolean {
    const key = keyOf(url)
    return key !== '' && this.#allowed.has(key)
  }

  /** Allows a page that one of our tools returned. */
  add(url: string, title: string | undefined): void {
    const key = keyOf(url)
    if (key === '') return
    this.#allowed.add(key)
    const known = this.#titles.get(key)
    this.#titles.set(key, { url: known?.url ?? url, title: title || known?.title || '' })
  }

  /** Finds where a text refers to these pages, by link or by URL. `start` is where the text begins in the answer. */
  citationsIn(text: string, start: number): readonly Annotation[] {
    if (this.#titles.size === 0) return []
    const found: Annotation[] = []
    for (const { index, url } of findWrittenUrls(text).take(addressesMax)) {
      if (found.length >= citationsMax) break
      const source = this.#titles.get(keyOf(url))
      if (source === undefined) continue
      const [from, to] = linkAround(text, index, index + url.length)
      found.push({ ...source, startIndex: start + from, endIndex: start + to })
    }
    return found
  }
}

function isCustomers({ role }: Message): boolean {
  return role === 'user' || role === 'system' || role === 'developer'
}

/** The texts to search for URLs. This blocks the event loop, so it is limited per message and per request. */
function* searchedTexts(messages: readonly Message[]): Generator<string, void, undefined> {
  let left = requestCharactersMax
  for (const text of messages.filter(isCustomers).flatMap(({ content = [] }) => content)) {
    const searched = cutAtSpace(text, Math.min(left, messageCharactersMax))
    left -= searched.length
    yield searched
  }
}

/** Cuts at a space: half a URL would be another URL. */
function cutAtSpace(text: string, charactersMax: number): string {
  return text.length <= charactersMax ? text : text.slice(0, Math.max(0, text.lastIndexOf(' ', charactersMax)))
}

/** Normalizes a URL, so that two spellings of one page match. Empty for text that is not a URL, or a URL with credentials. */
function keyOf(address: string): string {
  const url = URL.parse(/^https?:\/\//i.test(address) ? address : `https://${address}`)
  if (url === null || url.username !== '' || url.password !== '') return ''
  return `${url.host}${url.pathname.replace(/\/$/, '')}${url.search}`
}

/** The whole Markdown link when the URL is its target. */
function linkAround(text: string, from: number, to: number): readonly [from: number, to: number] {
  if (text.slice(from - 2, from) !== '](' || text[to] !== ')') return [from, to]
  const before = text.slice(Math.max(0, from - linkTextMax), from - 1)
  const opening = from - 1 - before.length + before.lastIndexOf('[')
  return !before.includes('[') || text.slice(opening, from).includes('\n') ? [from, to] : [opening, to + 1]
}
