import { isAbsent, isObject } from './parameter.ts'

/** Tokens of one answer. Prompt includes cached, and completion includes reasoning: neither is billed twice. */
export type Usage = {
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly completionTokens: number
  readonly reasoningTokens: number
}

/** Implausible usage, and why. It is logged, and the tokens are counted by us instead: it is never billed. */
export type AbsurdUsage = { readonly absurd: string }

// No model reads or writes a billion tokens in one answer.
const tokensMax = 1e9

/** Parses the upstream's report. Undefined when there is none; explicit zeros are a report. */
export function readUsage(raw: unknown): Usage | AbsurdUsage | undefined {
  if (isAbsent(raw)) return undefined
  if (!isObject(raw)) return { absurd: `usage is ${typeof raw}` }
  const usage = {
    promptTokens: raw.input_tokens,
    cachedTokens: detail(raw.input_tokens_details, 'cached_tokens'),
    completionTokens: raw.output_tokens,
    reasoningTokens: detail(raw.output_tokens_details, 'reasoning_tokens'),
  }
  const wrong = Object.entries(usage).find(([, tokens]) => !isTokens(tokens))
  if (wrong !== undefined) return { absurd: `${wrong[0]} is ${String(wrong[1]).slice(0, 40)}` }
  return refuseContradiction(usage as Usage)
}

/** The details and all of their members are optional. Absent means zero. */
function detail(details: unknown, name: string): unknown {
  if (isAbsent(details)) return 0
  return isObject(details) ? (details[name] ?? 0) : details
}

function isTokens(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= tokensMax
}

function refuseContradiction(usage: Usage): Usage | AbsurdUsage {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage
  if (cachedTokens > promptTokens) return { absurd: `${cachedTokens} cached of ${promptTokens} prompt tokens` }
  if (reasoningTokens > completionTokens) {
    return { absurd: `${reasoningTokens} reasoning of ${completionTokens} completion tokens` }
  }
  return usage
}
