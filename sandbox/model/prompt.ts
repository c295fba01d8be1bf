import { createHash } from 'node:crypto'
import type { ModelRequest } from './request.ts'
import { countTokens } from './tokens.ts'

const tokensPerItem = 3
const tokensPerReply = 3
const keysMax = 10_000
const cachedTokensMin = 1_024
const cachedTokensStep = 128

/** The input tokens of a request: every text in it, tools and answer schema as JSON, and a small constant for each item. */
export function promptTokens(request: ModelRequest): number {
  const itemTokens = request.items.reduce((sum, item) => sum + countTokens(item.text) + tokensPerItem, 0)
  return preambleTexts(request).reduce((sum, text) => sum + countTokens(text), itemTokens + tokensPerReply)
}

type Remembered = { readonly length: number; readonly digest: string; readonly tokens: number }

/** A prompt cache: the prefix that a request shares with the previous one under the same key counts as cached. */
export class PromptCache {
  // Stores digests, not prompts: ten thousand prompts of megabytes each would not fit in memory.
  readonly #remembered = new Map<string, Remembered>()

  /** The cached part of this prompt. Also stores the prompt for the next request. */
  cachedTokens(request: ModelRequest, tokens: number): number {
    const key = request.promptCacheKey
    if (key === undefined) return 0
    const prompt = [...preambleTexts(request), ...request.items.map((item) => JSON.stringify(item))].join('\n')
    const before = this.#remembered.get(key)
    this.#remember(key, { length: prompt.length, digest: digestOf(prompt), tokens })
    if (before === undefined || digestOf(prompt.slice(0, before.length)) !== before.digest) return 0
    const cached = Math.floor(before.tokens / cachedTokensStep) * cachedTokensStep
    return cached < cachedTokensMin ? 0 : cached
  }

  #remember(key: string, prompt: Remembered): void {
    // A map iterates in insertion order: deleting first makes its first key the least recently used one.
    this.#remembered.delete(key)
    this.#remembered.set(key, prompt)
    if (this.#remembered.size <= keysMax) return
    for (const oldest of this.#remembered.keys()) {
      this.#remembered.delete(oldest)
      return
    }
  }
}

function preambleTexts(request: ModelRequest): string[] {
  const tools = request.tools.length === 0 ? '' : JSON.stringify(request.body.tools)
  return [request.instructions, tools, request.format.schema === undefined ? '' : JSON.stringify(request.format.schema)]
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64')
}
