import { dirname, resolve } from 'node:path'
import type { UpstreamTimeouts } from '../config/config.ts'
import { upstreamProtocols } from '../config/settings.ts'
import { OperatorError } from '../errors.ts'
import { isObject, type JsonObject } from '../inference/parameter.ts'
import { InvalidAmountError, parse } from '../money/usdc.ts'
import { JsonFileError, readJsonFile, readTextFile } from './json-file.ts'
import type { ProviderSettings, Rates, Route } from './routes.ts'

/** The content of PROVIDERS_FILE. */
export type ProvidersFile = {
  readonly providers: readonly ProviderSettings[]
  /** Undefined: the models are configured elsewhere, and every provider serves all of them. */
  readonly models: readonly ListedModel[] | undefined
}

/** A model with its upstreams. `entry` has the other members. */
export type ListedModel = { readonly entry: JsonObject; readonly routes: readonly Route[] }

export type ProviderDefaults = { readonly timeouts: UpstreamTimeouts; readonly concurrencyMax: number }

/** Throws an `InvalidProvidersFileError` with one line for each mistake. */
export function readProvidersFile(path: string, defaults: ProviderDefaults): ProvidersFile {
  let content: unknown
  try {
    content = readJsonFile(path)
  } catch (error) {
    if (error instanceof JsonFileError) throw new InvalidProvidersFileError([error.message])
    throw error
  }
  const problems: string[] = []
  const file = new FileReader(problems, { defaults, folder: dirname(resolve(path)) }).read(content)
  if (problems.length > 0) throw new InvalidProvidersFileError(problems)
  return file
}

/** PROVIDERS_FILE is invalid: the service does not start, or keeps its previous settings. */
export class InvalidProvidersFileError extends OperatorError {
  constructor(problems: readonly string[]) {
    const lines = problems.map((problem) => (problem.endsWith('.') ? problem : `${problem}.`))
    super(
      lines.length === 1
        ? `PROVIDERS_FILE cannot be used: ${lines[0]}`
        : `PROVIDERS_FILE cannot be used:\n${lines.map((line) => `  ${line}`).join('\n')}`,
    )
  }
}

const providerMembers = [
  'protocol',
  'base_url',
  'api_key',
  'api_key_file',
  'headers',
  'connect_ms',
  'first_byte_ms',
  'idle_ms',
  'total_ms',
  'slow_ms',
  'concurrency',
]
const costMembers = ['input_cost_per_million', 'cached_input_cost_per_million', 'output_cost_per_million']
const upstreamMembers = ['provider', 'model', 'priority', 'weight', ...costMembers]
/** Headers of the connection and the body, and those that we set. */
const reservedHeaders = new Set([
  ...['accept', 'connection', 'content-encoding', 'content-length', 'content-type', 'expect', 'host', 'keep-alive'],
  ...['proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
])
const dayMs = 24 * 60 * 60_000
const concurrencyMax = 1_000_000
/** A server with few places stays useful to a service with one customer. */
const concurrencyPerAccountMin = 4
const priorityMax = 1_000
const weightMax = 1_000_000
const costMax = parse('10000')

type Surroundings = { readonly defaults: ProviderDefaults; readonly folder: string }

/** Reads everything that is valid and collects one line, with its position, for each mistake. */
class FileReader {
  readonly #problems: string[]
  readonly #defaults: ProviderDefaults
  readonly #folder: string
  #ids: readonly string[] = []

  constructor(problems: string[], { defaults, folder }: Surroundings) {
    this.#problems = problems
    this.#defaults = defaults
    this.#folder = folder
  }

  read(content: unknown): ProvidersFile {
    const empty = { providers: [], models: undefined }
    if (!isObject(content)) return this.#note(empty, 'it must be a JSON object with "providers"')
    this.#checkMembers(content, ['providers', 'models'], '')
    if (!isObject(content.providers) || Object.keys(content.providers).length === 0) {
      return this.#note(empty, '"providers" must be an object with at least one provider')
    }
    this.#ids = Object.keys(content.providers)
    const providers = Object.entries(content.providers).map(([id, value]) => this.#provider(id, value))
    if (content.models === undefined) return { providers, models: undefined }
    if (!Array.isArray(content.models) || content.models.length === 0) {
      return this.#note({ providers, models: undefined }, '"models" must be an array with at least one model')
    }
    return { providers, models: content.models.map((value, index) => this.#model(value, `models[${index}]`)) }
  }

  #note<Result>(result: Result, problem: string): Result {
    this.#problems.push(problem)
    return result
  }

  #checkMembers(value: JsonObject, known: readonly string[], place: string): void {
    for (const name of Object.keys(value)) {
      if (!known.includes(name)) this.#note(undefined, `${place === '' ? '' : `${place}: `}unknown member "${name}"`)
    }
  }

  #provider(id: string, value: unknown): ProviderSettings {
    const place = `providers.${id}`
    if (!/^[a-z0-9][a-z0-9._-]{0,39}$/i.test(id)) {
      this.#note(undefined, `${place}: the name must be 1 to 40 letters, digits or ._-`)
    }
    const members = isObject(value) ? value : this.#note<JsonObject>({}, `${place} must be an object`)
    this.#checkMembers(members, providerMembers, place)
    const { timeouts } = this.#defaults
    const count = (name: string, max: number) => this.#count(members[name], `${place}.${name}`, max)
    const concurrency = count('concurrency', concurrencyMax)
    return {
      id,
      protocol: this.#protocol(members.protocol, `${place}.protocol`),
      baseUrl: this.#url(members.base_url, `${place}.base_url`),
      apiKey: this.#apiKey(members, place),
      headers: this.#headers(members.headers, `${place}.headers`),
      timeouts: {
        connectMs: count('connect_ms', dayMs) ?? timeouts.connectMs,
        firstByteMs: count('first_byte_ms', dayMs) ?? timeouts.firstByteMs,
        idleMs: count('idle_ms', dayMs) ?? timeouts.idleMs,
        totalMs: count('total_ms', dayMs) ?? timeouts.totalMs,
      },
      slowMs: count('slow_ms', dayMs),
      concurrencyMax: concurrency ?? this.#defaults.concurrencyMax,
      concurrencyPerAccountMin:
        concurrency === undefined ? this.#defaults.concurrencyMax : Math.min(concurrency, concurrencyPerAccountMin),
    }
  }

  #protocol(value: unknown, place: string): ProviderSettings['protocol'] {
    const known = upstreamProtocols.find((name) => name === value)
    return (
      known ?? this.#note('responses', `${place} must be one of ${upstreamProtocols.join(', ')}, got ${shown(value)}`)
    )
  }

  #url(value: unknown, place: string): string {
    const url = typeof value === 'string' ? URL.parse(value) : null
    const isGood = url !== null && /^https?:$/.test(url.protocol) && url.search === '' && url.hash === ''
    if (!isGood || url.username !== '') {
      return this.#note('http://localhost', `${place} must be an http or https address without a key in it`)
    }
    return String(value).replace(/\/+$/, '')
  }

  #apiKey({ api_key: key, api_key_file: file }: JsonObject, place: string): string | undefined {
    if (key !== undefined && file !== undefined) {
      return this.#note(undefined, `${place}: api_key and api_key_file are both given: keep one`)
    }
    if (key === null) return undefined
    if (typeof key === 'string' && key.trim() !== '') return this.#headerText(key.trim(), `${place}.api_key`)
    if (file === undefined) {
      return this.#note(
        undefined,
        `${place}: the key is missing: give api_key or api_key_file, or "api_key": null for a server that needs none`,
      )
    }
    try {
      const content = readTextFile(resolve(this.#folder, String(file))).trim()
      if (content === '') return this.#note(undefined, `${place}.api_key_file names an empty file`)
      return this.#headerText(content, `${place}.api_key_file`)
    } catch (error) {
      return this.#note(undefined, `${place}.api_key_file cannot be read: ${(error as Error).message}`)
    }
  }

  /** A key with other characters cannot be sent: every request would fail. */
  #headerText(key: string, place: string): string | undefined {
    if (/^[\x21-\x7e]{1,4000}$/.test(key)) return key
    return this.#note(undefined, `${place} must be one line of ASCII characters without spaces`)
  }

  #headers(value: unknown, place: string): Record<string, string> {
    if (value === undefined) return {}
    const isHeader = ([name, content]: [string, unknown]) =>
      /^[\w-]{1,100}$/.test(name) && typeof content === 'string' && /^[\x20-\x7e]{0,4000}$/.test(content)
    const reserved = isObject(value)
      ? Object.keys(value).find((name) => reservedHeaders.has(name.toLowerCase()))
      : undefined
    if (reserved !== undefined) return this.#note({}, `${place} must not have "${reserved}": the service sets it`)
    if (isObject(value) && Object.entries(value).every(isHeader)) {
      return Object.fromEntries(Object.entries(value).map(([name, content]) => [name.toLowerCase(), String(content)]))
    }
    return this.#note({}, `${place} must be an object of header names and texts`)
  }

  #count(value: unknown, place: string, max: number, min = 1): number | undefined {
    if (value === undefined) return undefined
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
    return this.#note(undefined, `${place} must be a whole number from ${min} to ${max}, got ${shown(value)}`)
  }

  #model(value: unknown, index: string): ListedModel {
    const { upstreams, ...entry } = isObject(value) ? value : this.#note<JsonObject>({}, `${index} must be an object`)
    const place = typeof entry.id === 'string' ? `${index} (${entry.id})` : index
    if (entry.upstream_model !== undefined) {
      this.#note(undefined, `${place}: "upstream_model" belongs into "upstreams", as "model"`)
    }
    if (!Array.isArray(upstreams) || upstreams.length === 0) {
      return this.#note({ entry, routes: [] }, `${place} has no upstream: list at least one in "upstreams"`)
    }
    const routes = upstreams.map((upstream, at) =>
      this.#route(upstream, `${place}.upstreams[${at}]`, String(entry.id ?? '')),
    )
    const twice = routes.find(({ provider }, at) => routes.findIndex((route) => route.provider === provider) < at)
    if (twice !== undefined) this.#note(undefined, `${place} names provider "${twice.provider}" twice`)
    return { entry, routes }
  }

  #route(value: unknown, place: string, modelId: string): Route {
    const members = isObject(value) ? value : this.#note<JsonObject>({}, `${place} must be an object`)
    this.#checkMembers(members, upstreamMembers, place)
    const { provider, model = modelId } = members
    if (typeof provider !== 'string' || !this.#ids.includes(provider)) {
      const known = this.#ids.join(', ')
      this.#note(undefined, `${place}.provider must be one of ${known}, got ${shown(provider)}`)
    }
    if (typeof model !== 'string' || model === '') this.#note(undefined, `${place}.model must be a text`)
    return {
      provider: String(provider),
      model: String(model),
      priority: this.#count(members.priority, `${place}.priority`, priorityMax, 0) ?? 0,
      weight: this.#count(members.weight, `${place}.weight`, weightMax) ?? 1,
      rates: this.#rates(members, place),
    }
  }

  #rates(members: JsonObject, place: string): Rates | undefined {
    const { input_cost_per_million: input, output_cost_per_million: output } = members
    if (costMembers.every((name) => members[name] === undefined)) return undefined
    if (input === undefined || output === undefined) {
      return this.#note(undefined, `${place} must have both costs, input_cost_per_million and output_cost_per_million`)
    }
    const inputPerMillion = this.#cost(input, `${place}.input_cost_per_million`)
    const cachedPlace = `${place}.cached_input_cost_per_million`
    const cachedInputPerMillion = this.#cost(members.cached_input_cost_per_million ?? input, cachedPlace)
    if (cachedInputPerMillion > inputPerMillion) {
      this.#note(undefined, `${cachedPlace} must not be higher than input_cost_per_million`)
    }
    const outputPerMillion = this.#cost(output, `${place}.output_cost_per_million`)
    return { inputPerMillion, cachedInputPerMillion, outputPerMillion }
  }

  #cost(value: unknown, place: string): bigint {
    try {
      const cost = parse(String(value))
      if (cost <= costMax) return cost
    } catch (error) {
      if (!(error instanceof InvalidAmountError)) throw error
    }
    return this.#note(0n, `${place} must be USDC per million tokens, from 0 to 10000, got ${shown(value)}`)
  }
}

function shown(value: unknown): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}
