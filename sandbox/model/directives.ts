import { RequestError } from './request.ts'

/**
 * Directives script the model, from the text of the **last user message** (an older one is history and does nothing):
 *
 * | directive | effect |
 * |---|---|
 * | `[sandbox:error STATUS]` | that HTTP error instead of an answer: 400, 401, 403, 404, 429 (`Retry-After: 1`), 500, 503 |
 * | `[sandbox:delay MS]` | silence, headers included, before the first event or the error |
 * | `[sandbox:tokens N]` | the text has exactly N tokens, each a delta of its own (reasoning comes on top) |
 * | `[sandbox:say "TEXT"]` | the text is this JSON string, verbatim |
 * | `[sandbox:echo-request]` | the text is the received request body, as JSON |
 * | `[sandbox:refuse]` | a refusal instead of text |
 * | `[sandbox:annotate]` | `url_citation` annotations for the URLs seen, at least one |
 * | `[sandbox:reasoning-text]` | reasoning is shown as `reasoning_text`, not as summaries |
 * | `[sandbox:call NAME JSON]` | calls that function with these arguments, verbatim; several make parallel calls |
 * | `[sandbox:call-again]` | calls tools in every round, also when their output has come back |
 * | `[sandbox:content-filter]` | `response.incomplete` with `content_filter`, after some text |
 * | `[sandbox:fail-after N]` | `response.failed` after N output tokens |
 * | `[sandbox:error-event-after N]` | an `error` event after N output tokens |
 * | `[sandbox:cut-after N]` | the connection is destroyed after N output tokens |
 * | `[sandbox:end-after N]` | a clean end without terminal event after N output tokens |
 * | `[sandbox:stall-after N]` | nothing more after N output tokens, connection open |
 * | `[sandbox:no-usage]` | the terminal event's `usage` is null |
 * | `[sandbox:usage JSON]` | the terminal event's `usage` is this value, however absurd |
 * | `[sandbox:round N]` | directives after this one hold in round N only; the first is 1, each run of tool outputs begins the next |
 *
 * Output tokens are those of `usage`: reasoning counts, shown or not. A text shorter than an `…-after N` is lengthened.
 * With `call` alone, the round after the calls answers in text. Unknown or malformed directives are a 400.
 */
export type Script = {
  errorStatus: number | undefined
  delayMs: number
  tokens: number | undefined
  /** The text of the answer. */
  say: string | undefined
  stop: { readonly after: number; readonly how: ScriptedEnding } | undefined
  usage: { readonly value: unknown } | undefined
  calls: { readonly name: string; readonly arguments: string }[]
  flags: Set<Flag>
}

const flags = ['echo-request', 'refuse', 'annotate', 'reasoning-text', 'call-again', 'content-filter'] as const
type Flag = (typeof flags)[number]

export type ScriptedEnding = 'failed' | 'error' | 'cut' | 'end' | 'stall'

const tokensMax = 1_000_000
const delayMsMax = 600_000
const errorStatuses = [400, 401, 403, 404, 429, 500, 503]

type Directive = (script: Script, argument: string) => void

const directives: Readonly<Record<string, Directive>> = {
  error: (script, argument) => {
    script.errorStatus = errorStatuses.find((status) => String(status) === argument)
    if (script.errorStatus === undefined) throw malformed('error', `one of ${errorStatuses.join(', ')}`)
  },
  delay: (script, argument) => {
    script.delayMs = count('delay', argument, delayMsMax)
  },
  tokens: (script, argument) => {
    script.tokens = count('tokens', argument, tokensMax)
  },
  say: (script, argument) => {
    script.say = jsonString(argument)
    if (script.say === undefined) throw malformed('say', 'a JSON string')
  },
  'fail-after': stopAfter('fail-after', 'failed'),
  'error-event-after': stopAfter('error-event-after', 'error'),
  'cut-after': stopAfter('cut-after', 'cut'),
  'end-after': stopAfter('end-after', 'end'),
  'stall-after': stopAfter('stall-after', 'stall'),
  call: (script, argument) => {
    const [, name, given] = /^(\S+)\s*(.*)$/s.exec(argument) ?? []
    if (name === undefined) throw malformed('call', 'a function name')
    script.calls.push({ name, arguments: given || '{}' })
  },
  usage: (script, argument) => {
    try {
      script.usage = { value: JSON.parse(argument) }
    } catch {
      throw malformed('usage', 'a JSON value')
    }
  },
  'no-usage': (script) => {
    script.usage = { value: null }
  },
  ...Object.fromEntries(flags.map((flag): [string, Directive] => [flag, (script) => void script.flags.add(flag)])),
}

/** Splits a message into the script for this round and the remaining text. */
export function readScript(text: string, round: number): { script: Script; rest: string } {
  const script: Script = {
    errorStatus: undefined,
    delayMs: 0,
    tokens: undefined,
    say: undefined,
    stop: undefined,
    usage: undefined,
    calls: [],
    flags: new Set(),
  }
  const onceOnly: Script['calls'] = []
  let scope: number | undefined
  let rest = ''
  let end = 0
  for (const found of findDirectives(text)) {
    rest += text.slice(end, found.start)
    end = found.end
    if (found.name === 'round') {
      scope = count('round', found.argument, tokensMax)
      continue
    }
    const directive = Object.hasOwn(directives, found.name) ? directives[found.name] : undefined
    if (directive === undefined) throw unknownDirective(found.name)
    if (scope !== undefined && scope !== round) continue
    // Without a `round` directive, a scripted call happens only in the first round: otherwise every round would repeat it.
    const unscopedCall = found.name === 'call' && scope === undefined && round > 1
    directive(unscopedCall ? { ...script, calls: onceOnly } : script, found.argument)
  }
  if (script.flags.has('call-again')) script.calls.unshift(...onceOnly)
  return { script, rest: (rest + text.slice(end)).trim() }
}

type Found = { name: string; argument: string; start: number; end: number }

function* findDirectives(text: string): Generator<Found> {
  const opening = /\[sandbox:([a-z-]+)/g
  for (let match = opening.exec(text); match !== null; match = opening.exec(text)) {
    const closing = closingBracket(text, opening.lastIndex)
    if (closing === -1) continue
    const argument = text.slice(opening.lastIndex, closing).trim()
    opening.lastIndex = closing + 1
    yield { name: match[1]!, argument, start: match.index, end: closing + 1 }
  }
}

/** The end of the directive: JSON arguments may contain brackets, in strings too. */
function closingBracket(text: string, from: number): number {
  const token = /"(?:[^"\\]|\\.)*"|[[\]]/gs
  token.lastIndex = from
  let depth = 1
  for (let match = token.exec(text); match !== null; match = token.exec(text)) {
    if (match[0] === '[') depth += 1
    if (match[0] === ']') depth -= 1
    if (depth === 0) return match.index
  }
  return -1
}

function jsonString(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

function stopAfter(name: string, how: ScriptedEnding): Directive {
  return (script, argument) => {
    script.stop = { after: count(name, argument, tokensMax), how }
  }
}

function count(name: string, argument: string, highest: number): number {
  if (!/^\d{1,9}$/.test(argument) || Number(argument) > highest)
    throw malformed(name, `an integer from 0 to ${highest}`)
  return Number(argument)
}

function malformed(name: string, expected: string): RequestError {
  return new RequestError(`The directive [sandbox:${name} …] needs ${expected}.`, {
    param: 'input',
    code: 'invalid_value',
  })
}

function unknownDirective(name: string): RequestError {
  const known = [...Object.keys(directives), 'round'].join(', ')
  const message = `There is no directive [sandbox:${name}]. There are: ${known}.`
  return new RequestError(message, { param: 'input', code: 'invalid_value' })
}
