import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { OperatorError } from '../errors.ts'
import { InvalidAmountError, parse } from '../money/usdc.ts'

export type Model = {
  readonly id: string
  /** Atomic USDC per million tokens. */
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
  readonly contextLength: number
  readonly maxOutputTokens: number
}

/** All prices. A version never changes its prices: a request is charged at the version it was quoted at. */
export type PriceList = {
  readonly version: string
  readonly models: ReadonlyMap<string, Model>
  readonly defaultModel: string
  /** Atomic USDC per completed web search. */
  readonly searchPerCall: bigint
}

const searchPerCall = 8_750n

const documented: readonly ModelEntry[] = [
  entry('gpt-6-astra', '5.00', '25.00', 128_000),
  { ...entry('gpt-5.6-terra', '1.00', '5.00', 64_000), default: true },
  entry('gpt-5.6-luna', '1.00', '5.00', 64_000),
  entry('gpt-5.6-sol', '1.00', '5.00', 64_000),
  entry('gpt-5.3-codex-spark', '1.00', '5.00', 16_000),
]

/** The five default models, or the operator's list from a JSON file. */
export function loadPriceList(modelsFile: string | undefined): PriceList {
  return buildPriceList(readModelEntries(modelsFile))
}

/** The entries before validation; `buildPriceList` checks them. */
export function readModelEntries(modelsFile: string | undefined): readonly ModelEntry[] {
  return modelsFile === undefined ? documented : readModelsFile(modelsFile)
}

/** Throws an `InvalidModelsFileError` that names the invalid field. */
export function buildPriceList(entries: readonly ModelEntry[]): PriceList {
  const models = new Map<string, Model>()
  for (const [index, candidate] of entries.entries()) {
    const model = readModel(candidate, index)
    for (const id of [model.id, ...readAliases(candidate, index)]) {
      if (models.has(id)) throw new InvalidModelsFileError(`model "${id}" is listed twice`)
      models.set(id, { ...model, id })
    }
  }
  const isDefault = (candidate: ModelEntry) => candidate.default === true
  const [first, last] = [entries.findIndex(isDefault), entries.findLastIndex(isDefault)]
  if (first !== last)
    throw new InvalidModelsFileError(`entry ${last}: "default" is true for "${entries[first]?.id}" already`)
  const defaultModel = entries[Math.max(first, 0)]?.id
  if (defaultModel === undefined) throw new InvalidModelsFileError('the file lists no model')
  return { version: versionOf(models), models, defaultModel, searchPerCall }
}

// The version is a hash of the content: nodes with the same list agree on it without coordination.
function versionOf(models: ReadonlyMap<string, Model>): string {
  const lines = [...models.values()].map((model) => `${model.id} ${model.inputPerMillion} ${model.outputPerMillion}`)
  return createHash('sha256')
    .update([...lines.sort(), `search ${searchPerCall}`].join('\n'))
    .digest('hex')
    .slice(0, 16)
}

/** A model of MODELS_FILE or PROVIDERS_FILE. */
export type ModelEntry = {
  readonly id: string
  /** The upstream's name for the model. */
  readonly upstream_model?: string
  readonly input_per_million: string | number
  readonly output_per_million: string | number
  readonly context_length?: number
  readonly max_output_tokens: number
  readonly default?: boolean
  /** More ids of the same model: some clients choose an unsupported protocol by the model's name. */
  readonly aliases?: readonly string[]
}

function entry(id: string, input: string, output: string, maxOutputTokens: number): ModelEntry {
  return {
    id,
    upstream_model: id,
    input_per_million: input,
    output_per_million: output,
    context_length: 400_000,
    max_output_tokens: maxOutputTokens,
  }
}

function readModelsFile(path: string): readonly ModelEntry[] {
  let content: unknown
  try {
    content = JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    throw new InvalidModelsFileError(error instanceof Error ? error.message : String(error))
  }
  if (!Array.isArray(content)) throw new InvalidModelsFileError('the file is not a JSON array of models')
  for (const [index, item] of content.entries()) {
    if (typeof item !== 'object' || item === null) throw new InvalidModelsFileError(`entry ${index} is not an object`)
  }
  return content as readonly ModelEntry[]
}

const aliasesMax = 10

function readAliases({ aliases = [] }: ModelEntry, index: number): readonly string[] {
  if (Array.isArray(aliases) && aliases.length <= aliasesMax && aliases.every(isModelId)) return aliases
  throw new InvalidModelsFileError(
    `entry ${index}: "aliases" must be an array of at most ${aliasesMax} ids, each 1 to 100 letters, digits or ._/:-`,
  )
}

function isModelId(value: unknown): value is string {
  return typeof value === 'string' && /^[\w./:-]{1,100}$/.test(value)
}

function readModel(candidate: ModelEntry, index: number): Model {
  const where = `entry ${index}`
  if (!isModelId(candidate.id)) {
    throw new InvalidModelsFileError(`${where}: "id" must be 1 to 100 letters, digits or ._/:-`)
  }
  const maxOutputTokens = readCount(candidate.max_output_tokens, `${where}: "max_output_tokens"`)
  const contextLength = readCount(candidate.context_length ?? 400_000, `${where}: "context_length"`)
  if (maxOutputTokens > contextLength) {
    throw new InvalidModelsFileError(`${where}: "max_output_tokens" is above "context_length"`)
  }
  const { upstream_model: upstreamModel = candidate.id } = candidate
  if (typeof upstreamModel !== 'string' || upstreamModel === '') {
    throw new InvalidModelsFileError(`${where}: "upstream_model" must be a string`)
  }
  return {
    id: candidate.id,
    inputPerMillion: readPrice(candidate.input_per_million, `${where}: "input_per_million"`),
    outputPerMillion: readPrice(candidate.output_per_million, `${where}: "output_per_million"`),
    contextLength,
    maxOutputTokens,
  }
}

// A price outside these bounds is a typo (zero, or a thousandfold): refuse it at startup.
const priceMin = parse('0.000001')
const priceMax = parse('10000')

function readPrice(value: unknown, where: string): bigint {
  try {
    const price = parse(String(value))
    if (price >= priceMin && price <= priceMax) return price
  } catch (error) {
    if (!(error instanceof InvalidAmountError)) throw error
  }
  throw new InvalidModelsFileError(
    `${where} must be USDC per million tokens, from 0.000001 to 10000, got ${String(value)}`,
  )
}

function readCount(value: unknown, where: string): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 100_000_000) return value
  throw new InvalidModelsFileError(`${where} must be a whole number of tokens, got ${String(value)}`)
}

/** MODELS_FILE is invalid: the service does not start. */
export class InvalidModelsFileError extends OperatorError {
  readonly problem: string
  constructor(problem: string) {
    super(`MODELS_FILE cannot be used: ${problem}.`)
    this.problem = problem
  }
}
