/** A request that is more or less wrong, as bytes: what its text says may not even be text. */
export type FuzzedRequest = {
  readonly body: Buffer
  readonly headers: Readonly<Record<string, string>>
  readonly delivery: Delivery
}

/** In one piece, in chunks of unknown total length, or aborted before its end. */
export type Delivery = 'whole' | 'chunked' | 'cut'

/** The request of this number: the same seed and number always give the same one. */
export function fuzzedRequest(seed: number, number: number): FuzzedRequest {
  const dice = new Dice(seed, number)
  const body = structuredClone(dice.pick(validBodies)) as Json
  for (let left = dice.pick([0, 1, 1, 1, 2, 2, 3, 5]); left > 0; left -= 1) changeOne(body, dice)
  let text = JSON.stringify(body)
  if (dice.chance(0.15)) text = dice.pick(textChanges)(text, dice)
  let bytes = Buffer.from(text)
  if (dice.chance(0.15)) bytes = dice.pick(byteChanges)(bytes, dice)
  return {
    body: bytes,
    headers: dice.chance(0.05) ? dice.pick(oddHeaders) : { 'content-type': 'application/json' },
    delivery: dice.pick<Delivery>(['chunked', ...(dice.chance(0.1) ? (['cut'] as const) : []), ...wholes]),
  }
}

const wholes: readonly Delivery[] = Array.from({ length: 9 }, () => 'whole')

type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

/** Chance that can be repeated (mulberry32). */
class Dice {
  #state: number

  constructor(seed: number, number: number) {
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(number + 1, 0xc2b2ae35)
  }

  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit)
  }

  chance(probability: number): boolean {
    return this.below(1_000_000) < probability * 1_000_000
  }

  pick<Choice>(choices: readonly Choice[]): Choice {
    return choices[this.below(choices.length)]!
  }
}

const user = { role: 'user', content: 'What is a penny worth in a shop?' }
const shopTool = {
  type: 'function',
  function: {
    name: 'look_up_shop',
    description: 'Finds a shop',
    strict: true,
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string' },
        radius: { type: 'integer', minimum: 1 },
        open: { type: ['boolean', 'null'] },
      },
      required: ['city'],
      additionalProperties: false,
    },
  },
}
const call = { id: 'call_1', type: 'function', function: { name: 'look_up_shop', arguments: '{"city":"Ürümqi"}' } }

/** Everything that a request may say, in bodies that are answered with a 200. */
const validBodies: readonly object[] = [
  { messages: [user] },
  { model: 'gpt-5.6-luna', messages: [user], max_tokens: 20, reasoning_effort: 'none' },
  {
    model: 'gpt-5.6-terra',
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Hello 🪙' }] },
    ],
    stream: true,
    stream_options: { include_usage: true },
  },
  {
    messages: [
      user,
      { role: 'assistant', content: null, reasoning_content: 'Hm.', tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', content: 'Two shops are open.' },
    ],
    tools: [shopTool],
    parallel_tool_calls: false,
  },
  {
    messages: [user],
    tools: [shopTool, { type: 'function', function: { name: 'noop' } }],
    tool_choice: { type: 'function', function: { name: 'look_up_shop' } },
    stream: true,
  },
  {
    messages: [{ role: 'developer', content: 'Answer in JSON.' }, user],
    response_format: {
      type: 'json_schema',
      json_schema: {
        name: 'answer',
        strict: true,
        schema: {
          type: 'object',
          properties: { worth: { type: 'number' }, words: { type: 'array', items: { $ref: '#/$defs/word' } } },
          required: ['worth', 'words'],
          additionalProperties: false,
          $defs: { word: { anyOf: [{ type: 'string' }, { enum: [1, 2] }] } },
        },
      },
    },
  },
  {
    messages: [{ role: 'user', content: 'Some json, please.' }],
    response_format: { type: 'json_object' },
    stream: true,
  },
  {
    model: 'gpt-6-astra',
    messages: [
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'I may not.' },
          { type: 'refusal', refusal: 'No.' },
        ],
      },
      { role: 'user', name: 'ann', content: 'Why?' },
    ],
    max_completion_tokens: 300,
    n: 1,
    temperature: 0.5,
    top_p: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    seed: 7,
    logprobs: false,
    stop: ['\n'],
    logit_bias: { 50256: -100 },
    user: 'ann',
    metadata: { a: 'b' },
    modalities: ['text'],
    prompt_cache_key: 'key',
    web_search: false,
    web_fetch: false,
    reasoning_effort: 'high',
  },
]

/** The path of a value in a body. */
type Place = { readonly parent: Json[] | { [name: string]: Json }; readonly key: string | number }

function changeOne(body: Json, dice: Dice): void {
  const places = [...placesIn(body)]
  if (places.length > 0) dice.pick(changes)(dice.pick(places), dice)
}

function* placesIn(value: Json): Generator<Place> {
  if (typeof value !== 'object' || value === null) return
  const parent = value as { [name: string]: Json }
  for (const key of Object.keys(parent)) {
    yield { parent, key }
    yield* placesIn(parent[key]!)
  }
}

function at({ parent, key }: Place): Json {
  return (parent as { [name: string | number]: Json })[key]!
}

function set({ parent, key }: Place, value: Json): void {
  // Not an assignment: `__proto__` shall be a member like any other.
  Object.defineProperty(parent, key, { value, enumerable: true, writable: true, configurable: true })
}

type Change = (place: Place, dice: Dice) => void

const retype: Change = (place, dice) => set(place, structuredClone(dice.pick(oddValues)))

const changes: readonly Change[] = [
  retype,
  retype,
  function drop({ parent, key }) {
    if (Array.isArray(parent)) parent.splice(Number(key), 1)
    else delete parent[key]
  },
  function repeat(place, dice) {
    const { parent, key } = place
    const times = dice.pick([1, 1, 2, 5, 200])
    const copies = Array.from({ length: times }, () => structuredClone(at(place)))
    if (Array.isArray(parent)) parent.splice(Number(key), 0, ...copies)
    else set({ parent, key: dice.pick(names) }, copies[0]!)
  },
  function nest(place, dice) {
    let value = at(place)
    const name = dice.chance(0.5) ? dice.pick(names) : undefined
    for (let depth = dice.pick([1, 1, 2, 10, 60, 100]); depth > 0; depth -= 1) {
      value = name === undefined ? [value] : { [name]: value }
    }
    set(place, value)
  },
  function transplant(place, dice) {
    const donor = structuredClone(dice.pick(validBodies)) as Json
    set(place, at(dice.pick([...placesIn(donor)])))
  },
  function rename({ parent, key }, dice) {
    if (Array.isArray(parent)) return
    const value = parent[key]!
    delete parent[key]
    set({ parent, key: dice.pick([...names, `${key} `, String(key).toUpperCase()]) }, value)
  },
  function rewrite(place, dice) {
    const value = at(place)
    if (typeof value !== 'string') return retype(place, dice)
    const from = dice.below(value.length + 1)
    const to = from + dice.below(value.length - from + 1)
    set(place, value.slice(0, from) + dice.pick(oddTexts) + value.slice(to))
  },
]

const oddTexts: readonly string[] = [
  '',
  ' ',
  '\0',
  '\ud83e',
  '\udd99',
  '🦙',
  '👩‍👩‍👧‍👦',
  'é'.repeat(40),
  '\u202e',
  '\ufeff',
  '\r\n\r\n',
  'data: [DONE]\n\n',
  '<|endoftext|>',
  '"}],"model":"x',
  "'; drop table requests; --",
  '漢字'.repeat(2_000),
  'a'.repeat(20_000),
  ' '.repeat(20_000),
]

const oddValues: readonly Json[] = [
  ...oddTexts,
  null,
  true,
  false,
  0,
  -0,
  1,
  2,
  -1,
  15,
  16,
  1.5,
  128_000,
  128_001,
  2 ** 53,
  1e308,
  -1e308,
  5e-324,
  [],
  {},
  [null],
  [[]],
  [{}],
  { type: 'text' },
  { type: 'text', text: '' },
  { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
  { type: 'input_audio', input_audio: { data: '', format: 'wav' } },
  { type: 'function' },
  { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [] } },
  { $ref: '#' },
  { $ref: '#/$defs/none' },
  { $ref: '#/%' },
  { toString: 'text' },
  { type: 'object', properties: null, required: 7 },
  { allOf: [{ $ref: '#' }, { not: {} }] },
  'auto',
  'none',
  'required',
  'user',
  'assistant',
  'tool',
  'system',
  'call_1',
  'gpt-6-astra',
  'gpt-5.3-codex-spark',
  'gpt-2',
  'json_object',
  'json_schema',
  'xhigh',
]

const names = [
  ...new Set(validBodies.flatMap((body) => [...placesIn(body as Json)].map(({ key }) => String(key)))),
  '__proto__',
  'constructor',
  'toString',
  'functions',
  'function_call',
  'audio',
  '',
]

const oddLiterals = [
  '1e400',
  '-1e400',
  '-0',
  '00',
  '0x10',
  'NaN',
  'Infinity',
  'undefined',
  '9'.repeat(400),
  '1e-400',
  "'a'",
]

/** Changes that no value could express: the text itself is odd, or no JSON at all. */
const textChanges: readonly ((text: string, dice: Dice) => string)[] = [
  (text, dice) => text.replace('{', `{${JSON.stringify(dice.pick(names))}:${JSON.stringify(dice.pick(oddValues))},`),
  (text, dice) => replaceAt(text, /-?\d+(\.\d+)?|true|false|null/g, dice.pick(oddLiterals), dice),
  (text, dice) => replaceAt(text, /[[\]{}:,"]/g, dice.pick(['', ',', '"', '[', '}', '/**/', '\\']), dice),
  (text, dice) => text.slice(0, dice.below(text.length)),
  (text) => `\ufeff${text}`,
  (text, dice) => text + dice.pick([' ', '\n\n', 'x', '{}', '\0', ']', text]),
  (text) => `[${text}]`,
  (text) => JSON.stringify(text),
  (text) => JSON.stringify(JSON.parse(text), null, '\t'),
  (_, dice) => dice.pick(['', 'null', '""', '0', '[]', '{}', 'true', '[[[[', '{"', 'messages=hello']),
  (text, dice) =>
    text.replace(/[a-z]/g, (letter) => (dice.chance(0.2) ? `\\u00${letter.charCodeAt(0).toString(16)}` : letter)),
]

function replaceAt(text: string, pattern: RegExp, replacement: string, dice: Dice): string {
  const found = [...text.matchAll(pattern)]
  if (found.length === 0) return text
  const { 0: match, index } = dice.pick(found)
  return text.slice(0, index) + replacement + text.slice(index + match.length)
}

const byteChanges: readonly ((bytes: Buffer<ArrayBuffer>, dice: Dice) => Buffer<ArrayBuffer>)[] = [
  function flip(bytes, dice) {
    const flipped = Buffer.from(bytes)
    for (let left = dice.pick([1, 2, 20]); left > 0 && bytes.length > 0; left -= 1) {
      flipped[dice.below(bytes.length)]! ^= 1 << dice.below(8)
    }
    return flipped
  },
  function insert(bytes, dice) {
    const from = dice.below(bytes.length + 1)
    const odd = Buffer.from(dice.pick([[0], [0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5], [0xe2, 0x82], [0x80]]))
    return Buffer.concat([bytes.subarray(0, from), odd, bytes.subarray(from)])
  },
  (bytes, dice) => bytes.subarray(0, dice.below(bytes.length + 1)),
  (bytes, dice) => bytes.subarray(dice.below(bytes.length + 1)),
  (bytes) => Buffer.from(bytes.toString('utf8'), 'utf16le'),
  (bytes) => Buffer.from(bytes.toString('utf8'), 'latin1'),
]

const oddHeaders: readonly Readonly<Record<string, string>>[] = [
  {},
  { 'content-type': '' },
  { 'content-type': 'text/plain' },
  { 'content-type': 'APPLICATION/JSON' },
  { 'content-type': 'application/json;charset=latin1' },
  { 'content-type': ' application/json ; x' },
  { 'content-type': 'application/vnd.penny+json' },
  { 'content-type': 'application/x-www-form-urlencoded' },
  { 'content-type': 'multipart/form-data; boundary=x' },
  { 'content-type': `application/json;${'x'.repeat(2_000)}` },
  { 'content-type': 'application/json', 'content-encoding': 'gzip' },
  { 'content-type': 'application/json', 'content-encoding': 'identity' },
  { 'content-type': 'application/json', accept: 'image/png', 'x-stainless-retry-count': '-1' },
]
