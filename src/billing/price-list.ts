import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { OperatorError } from '../errors.ts'
import { InvalidAmountError, parse } from '../money/usdc.ts'

export type Model = {
  readonly id: string
  /** What the upstream calls it. */
  readonly upstreamModel: string
  /** Atomic USDC for a million tokens. */
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
  readonly contextLength: number
  readonly maxOutputTokens: number
}

/** What everything costs. Its version names these very prices for ever: a request is charged at the version it was quoted at. */
export type PriceList = {
  readonly version: string
  readonly models: ReadonlyMap<string, Model>
  readonly defaultModel: string
  /** Atomic USDC for one web search that ran. */
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

/** The five models of the service document, or an operator's own list from a JSON file. */
export function loadPriceList(modelsFile: string | undefined): PriceList {
  return buildPriceList(modelsFile === undefined ? documented : readModelsFile(modelsFile))
}

function buildPriceList(entries: readonly ModelEntry[]): PriceList {
  const models = new Map<string, Model>()
  for (const [index, candidate] of entries.entries()) {
    const model = readModel(candidate, index)
    for (const id of [model.id, ...readAliases(candidate, index)]) {
      if (models.has(id)) throw new InvalidModelsFileError(`model "${id}" is listed twice`)
      models.set(id, { ...model, id })
    }
  }
  const defaults = entries.filter((candidate) => candidate.default === true)
  if (defaults.length > 1) throw new InvalidModelsFileError('more than one model has "default": true')
  const defaultModel = defaults[0]?.id ?? entries[0]?.id
  if (defaultModel === undefined) throw new InvalidModelsFileError('it lists no model')
  return { version: versionOf(models), models, defaultModel, searchPerCall }
}

// The version is the content's own hash, so two nodes with the same list agree on it without asking anyone.
function versionOf(models: ReadonlyMap<string, Model>): string {
  const lines = [...models.values()].map((model) => `${model.id} ${model.inputPerMillion} ${model.outputPerMillion}`)
  return createHash('sha256')
    .update([...lines.sort(), `search ${searchPerCall}`].join('\n'))
    .digest('hex')
    .slice(0, 16)
}

type ModelEntry = {
  readonly id: string
  readonly upstream_model?: string
  readonly input_per_million: string | number
  readonly output_per_million: string | number
  readonly context_length?: number
  readonly max_output_tokens: number
  readonly default?: boolean
  /** Further ids of the same model: some clients choose a protocol that is not offered by the name of a model. */
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
  if (!Array.isArray(content)) throw new InvalidModelsFileError('it is not a JSON array of models')
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
  const upstreamModel = candidate.upstream_model ?? candidate.id
  if (typeof upstreamModel !== 'string' || upstreamModel === '') {
    throw new InvalidModelsFileError(`${where}: "upstream_model" must be a string`)
  }
  return {
    id: candidate.id,
    upstreamModel,
    inputPerMillion: readPrice(candidate.input_per_million, `${where}: "input_per_million"`),
    outputPerMillion: readPrice(candidate.output_per_million, `${where}: "output_per_million"`),
    contextLength,
    maxOutputTokens,
  }
}

// A price out of these bounds is a slip of the pen (zero, or a thousandfold): refusing it at start is cheaper than either mistake.
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

/** An operator's MODELS_FILE cannot be used: the service does not start. */
export class InvalidModelsFileError extends OperatorError {
  constructor(problem: string) {
    super(`MODELS_FILE cannot be used: ${problem}.`)
  }
}
