import { createHash } from 'node:crypto'
import { readScript, type Script, type ScriptedEnding } from './directives.ts'
import type { Effort, FunctionTool, InputItem, ModelRequest } from './request.ts'
import { type Fill, schemaValue } from './schema-value.ts'
import { splitTokens, wordTokens } from './tokens.ts'
import { citeFindings, type Finding, findingsIn, isWanted, isWebTool, pageToRead, queryIn } from './web.ts'

/** The parts of an answer, as lists of tokens. */
export type ReasoningPart = {
  readonly kind: 'reasoning'
  readonly paragraphs: readonly string[][]
  readonly shown: 'no' | 'summary' | 'text'
}
export type MessagePart = {
  readonly kind: 'message'
  readonly content: 'output_text' | 'refusal'
  readonly tokens: readonly string[]
  readonly citedUrls: readonly string[]
}
export type CallPart = { readonly kind: 'function_call'; readonly name: string; readonly tokens: readonly string[] }
export type Part = ReasoningPart | MessagePart | CallPart

export type Ending = 'completed' | 'max_output_tokens' | 'content_filter' | ScriptedEnding

/** The whole answer, and where and how it stops; decided before the first token is sent. */
export type Answer = {
  readonly parts: readonly Part[]
  readonly stop: { readonly after: number; readonly how: Ending }
  readonly script: Script
}

const queryLengthMax = 100
const quoteLengthMax = 160
const citationsMax = 3

/** What the answer depends on besides the parameters. */
type Turn = {
  readonly script: Script
  /** The last user message without its directives. */
  readonly userText: string
  readonly toolOutputs: readonly string[]
  /** The functions that were called since that message, and the pages that they returned. */
  readonly called: ReadonlySet<string>
  readonly findings: readonly Finding[]
  readonly urls: readonly string[]
  /** Differs between messages, to vary the answers. */
  readonly seed: number
}

/** The answer to a request. Deterministic: the same request always gets the same answer. */
export function compose(request: ModelRequest): Answer {
  const turn = readTurn(request.items)
  const reasoning = composeReasoning(request, turn)
  const reasoningTokens = reasoning.reduce((sum, part) => sum + partTokens(part), 0)
  const calls = chooseCalls(request, turn)
  const spoken = calls.length > 0 ? calls : [composeMessage(request, turn, reasoningTokens)]
  const parts = [...reasoning, ...spoken]
  const total = parts.reduce((sum, part) => sum + partTokens(part), 0)
  return { parts, stop: decideStop(turn.script, reasoningTokens, total, request.maxOutputTokens), script: turn.script }
}

function partTokens(part: Part): number {
  return part.kind === 'reasoning' ? part.paragraphs.flat().length : part.tokens.length
}

function readTurn(items: readonly InputItem[]): Turn {
  const lastUser = items.findLastIndex((item) => item.kind === 'message' && item.role === 'user')
  const since = items.slice(lastUser + 1)
  const isOutput = (item: InputItem | undefined) => item?.kind === 'function_call_output'
  const round = 1 + since.filter((item, index) => isOutput(item) && !isOutput(since[index + 1])).length
  const { script, rest } = readScript(items[lastUser]?.text ?? '', round)
  const lastOther = items.findLastIndex((item) => !isOutput(item))
  const toolOutputs = items.slice(lastOther + 1).map((item) => item.text)
  const urls = [rest, ...toolOutputs].flatMap((text) => text.match(/https?:\/\/[^\s"'<>)\]}]+/g) ?? [])
  const called = new Set(since.flatMap((item) => (item.kind === 'function_call' ? [item.name] : [])))
  const findings = findingsIn(since.filter(isOutput).map((item) => item.text))
  const seed = createHash('sha256').update(rest).digest().readUInt32BE()
  const knownUrls = urls.length > 0 ? urls : ['https://example.com/']
  return { script, userText: rest, toolOutputs, called, findings, urls: knownUrls, seed }
}

const reasoningLengths: Readonly<Record<Effort, { paragraphs: number; tokens: number }>> = {
  none: { paragraphs: 0, tokens: 0 },
  minimal: { paragraphs: 0, tokens: 0 },
  low: { paragraphs: 1, tokens: 16 },
  medium: { paragraphs: 2, tokens: 48 },
  high: { paragraphs: 3, tokens: 96 },
  xhigh: { paragraphs: 4, tokens: 144 },
  max: { paragraphs: 5, tokens: 192 },
}
const reasoningTitles = [
  'Reading the request',
  'Weighing the options',
  'Checking the facts',
  'Choosing the words',
  'Looking back',
]

function composeReasoning(request: ModelRequest, turn: Turn): Part[] {
  const { paragraphs, tokens } = reasoningLengths[request.effort]
  if (paragraphs === 0) return []
  const shown = turn.script.flags.has('reasoning-text') ? 'text' : request.summaryWanted ? 'summary' : 'no'
  const texts = reasoningTitles
    .slice(0, paragraphs)
    .map((title, index) => [
      ...splitTokens(`**${title}**\n\nI think`),
      ...wordTokens(tokens + ((turn.seed >>> index) % 8)),
    ])
  return [{ kind: 'reasoning', paragraphs: texts, shown }]
}

function chooseCalls(request: ModelRequest, turn: Turn): Part[] {
  const { mode, tools } = request.toolChoice
  if (mode === 'none') return []
  // Scripted calls are sent as written, even to unknown functions: a real model may do that too.
  const { calls, tokens, say, flags } = turn.script
  if (calls.length > 0) return calls.map((call) => functionCall(call.name, call.arguments))
  const forced = mode === 'required' || flags.has('call-again')
  const textScripted = tokens !== undefined || say !== undefined || flags.has('echo-request') || flags.has('refuse')
  const last = request.items.at(-1)
  const asked = last?.kind === 'message' && last.role === 'user' && !textScripted
  const page = textScripted ? undefined : chooseReading(tools, turn)
  if (page !== undefined) return [page]
  if (!forced && !asked) return []
  const matching = tools.filter((tool) =>
    isWebTool(tool) ? isWanted(turn.userText, tool) : sharesWord(turn.userText, tool),
  )
  const chosen = matching.length === 0 && forced ? tools.slice(0, 1) : matching
  return (request.parallelToolCalls ? chosen : chosen.slice(0, 1)).map((tool) =>
    functionCall(tool.name, JSON.stringify(schemaValue(tool.parameters, fillFrom(turn)))),
  )
}

/** The page that a search has found; read once. */
function chooseReading(tools: readonly FunctionTool[], turn: Turn): Part | undefined {
  const url = pageToRead(turn.userText, turn.findings)
  const offered = tools.some((tool) => tool.name === 'web_fetch') && !turn.called.has('web_fetch')
  return url === undefined || !offered ? undefined : functionCall('web_fetch', JSON.stringify({ url }))
}

function functionCall(name: string, given: string): Part {
  return { kind: 'function_call', name, tokens: splitTokens(given) }
}

// Common words occur in every sentence and description, and would trigger a tool for any text.
const commonWords = new Set(
  'about after also been before does each from give have into just like make more most only other over please some such tell than that their them then there these they this used uses using very want were what when where which will with would write your'.split(
    ' ',
  ),
)

function sharesWord(text: string, tool: FunctionTool): boolean {
  const said = new Set(longWords(text))
  return longWords(`${tool.name} ${tool.description}`).some((word) => said.has(word))
}

function longWords(text: string): string[] {
  const words =
    text
      .replace(/(\p{Ll})(\p{Lu})/gu, '$1 $2')
      .toLowerCase()
      .match(/\p{L}{4,}/gu) ?? []
  return words.filter((word) => !commonWords.has(word))
}

function fillFrom(turn: Turn): Fill {
  const text = shorten(queryIn(turn.userText), queryLengthMax) || 'sandbox'
  return (name, format) => (/^ur[il]$/i.test(format) || /ur[il]$|link$/i.test(name) ? turn.urls[0]! : text)
}

function composeMessage(request: ModelRequest, turn: Turn, reasoningTokens: number): Part {
  const citedUrls = turn.script.flags.has('annotate') ? [...new Set(turn.urls)].slice(0, citationsMax) : []
  if (turn.script.flags.has('refuse')) {
    const tokens = splitTokens('I am the Penny Router sandbox model, and I was told to refuse this.')
    return { kind: 'message', content: 'refusal', tokens, citedUrls: [] }
  }
  return { kind: 'message', content: 'output_text', tokens: composeText(request, turn, reasoningTokens), citedUrls }
}

function composeText(request: ModelRequest, turn: Turn, reasoningTokens: number): string[] {
  const { script } = turn
  if (script.flags.has('echo-request')) return splitTokens(JSON.stringify(request.body))
  if (script.say !== undefined) return splitTokens(script.say)
  if (script.tokens !== undefined) return wordTokens(script.tokens)
  if (request.format.type === 'json_schema') {
    return splitTokens(JSON.stringify(schemaValue(request.format.schema, fillFrom(turn))))
  }
  if (request.format.type === 'json_object') {
    const answer = {
      from: 'the Penny Router sandbox model',
      about: shorten(turn.userText, quoteLengthMax),
      words: wordCount(turn),
    }
    return splitTokens(JSON.stringify(answer))
  }
  const prose = splitTokens(composeProse(turn))
  // A scripted failure must happen in the middle of the text, not after it.
  const missing = (script.stop?.after ?? 0) + 1 - reasoningTokens - prose.length
  return missing > 0 ? [...prose, ...wordTokens(missing)] : prose
}

const remarks = [
  'A real model would have thought about it; I only counted.',
  'Everything else here is real: the stream, the tokens, the receipt.',
  'Ask me the same again and you will read the same again.',
  'Point the service at another upstream when you want an opinion.',
  'The price of this answer was metered as if it were worth something.',
  'My favourite number is the one in your ledger row.',
  'I was quick about it, since there was nothing to look up.',
]

function composeProse(turn: Turn): string {
  const quote = shorten(turn.userText, quoteLengthMax)
  const heard =
    quote === '' ? 'You wrote nothing that I could quote.' : `You wrote ${wordCount(turn)} words: “${quote}”.`
  const quoted = () => turn.toolOutputs.map((output) => `The tool answered: “${shorten(output, quoteLengthMax)}”.`)
  const found = turn.findings.length > 0 ? citeFindings(turn.findings.slice(0, citationsMax)) : quoted()
  const closing = [0, 2, 4].slice(found.length).map((offset) => remarks[(turn.seed + offset) % remarks.length])
  const [, markdown] = markdownAnswers.find(([asked]) => asked.test(turn.userText)) ?? []
  const prose = ['I am the Penny Router sandbox model.', heard, ...found, ...closing].join(' ')
  return markdown === undefined ? prose : `${prose}\n\n${markdown}`
}

/** For the example prompts of the Playground: newcomers see how Markdown looks there. */
const markdownAnswers: readonly (readonly [asked: RegExp, answer: string])[] = [
  [
    /\bin a table\b/i,
    '| database | concurrency | best use |\n|---|---|---|\n| PostgreSQL | many writers | services |\n| SQLite | one writer | one device |\n| DuckDB | one process | analysis |',
  ],
  [
    /\bTypeScript function\b/i,
    '```ts\nasync function retry<T>(run: () => Promise<T>, triesMax = 5): Promise<T> {\n  for (let tries = 1; ; tries += 1) {\n    try {\n      return await run()\n    } catch (error) {\n      if (tries === triesMax) throw error\n      await new Promise((done) => setTimeout(done, 100 * 2 ** tries))\n    }\n  }\n}\n```',
  ],
  [
    /\bnumbered list\b/i,
    '1. Each entry contains the **hash** of the entry before it.\n2. Changing one entry changes its hash.\n3. The next entry then no longer matches, so the change shows.',
  ],
]

function wordCount(turn: Turn): number {
  return turn.userText.match(/\S+/g)?.length ?? 0
}

function shorten(text: string, lengthMax: number): string {
  const characters = [
    ...text
      .slice(0, lengthMax * 4)
      .replace(/\s+/g, ' ')
      .trim(),
  ]
  return characters.length <= lengthMax ? characters.join('') : `${characters.slice(0, lengthMax - 1).join('')}…`
}

const textBeforeFilter = 12

/** The earliest way to stop; on a tie the scripted one wins. */
function decideStop(script: Script, reasoningTokens: number, total: number, outputTokensMax: number): Answer['stop'] {
  const ways: Answer['stop'][] = []
  if (script.stop !== undefined) ways.push({ after: Math.min(script.stop.after, total), how: script.stop.how })
  if (script.flags.has('content-filter')) {
    ways.push({ after: Math.min(reasoningTokens + textBeforeFilter, total), how: 'content_filter' })
  }
  if (outputTokensMax < total) ways.push({ after: outputTokensMax, how: 'max_output_tokens' })
  return ways.reduce(
    (first, way) => (way.after < first.after ? way : first),
    ways[0] ?? { after: total, how: 'completed' },
  )
}
