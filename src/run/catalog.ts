import type { SandboxReady } from '../../sandbox/start.ts'
import {
  buildPriceList,
  InvalidModelsFileError,
  type Model,
  type ModelEntry,
  type PriceList,
  readModelEntries,
} from '../billing/price-list.ts'
import type { Config } from '../config/config.ts'
import { InvalidConfigError } from '../config/setting.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { InvalidProvidersFileError, type ListedModel, readProvidersFile } from '../providers/providers-file.ts'
import type { ProviderSettings, Route, RoutingTable } from '../providers/routes.ts'

/** The models that are sold, and the providers that serve them. */
export type Catalog = {
  readonly prices: PriceList
  /** Undefined: one provider from UPSTREAM_BASE_URL, or the sandbox's. */
  readonly providers: readonly ProviderSettings[] | undefined
  /** By id, including aliases. Undefined: every provider serves every model. */
  readonly routes: ReadonlyMap<string, readonly Route[]> | undefined
  /** The upstream's name for each model, where every provider serves it. */
  readonly upstreamNames: ReadonlyMap<string, string>
  /** Warnings, one line each. */
  readonly warnings: readonly string[]
}

/** The catalog in use: a reload replaces its providers, never its prices. */
export type LiveCatalog = { current: Catalog }

/** Reads MODELS_FILE and PROVIDERS_FILE. Throws an error with one line per mistake. */
export function loadCatalog(config: Config): Catalog {
  if (config.providersFile === undefined) return catalogOf(readModelEntries(config.modelsFile), undefined)
  const { providers, models } = readProvidersFile(config.providersFile, {
    timeouts: config.upstreamTimeouts,
    concurrencyMax: config.requestsMax,
  })
  if (models === undefined) return catalogOf(readModelEntries(config.modelsFile), providers)
  if (config.modelsFile !== undefined) {
    throw new InvalidConfigError('MODELS_FILE is set, but PROVIDERS_FILE has "models" too: keep one.')
  }
  const entries = models.map(({ entry }) => entry as unknown as ModelEntry)
  const prices = buildListedPrices(entries)
  return {
    prices,
    providers,
    routes: new Map(models.flatMap(({ entry, routes }) => idsOf(entry as ModelEntry).map((id) => [id, routes]))),
    upstreamNames: new Map(),
    warnings: models.flatMap(({ entry, routes }) => lossesOf(prices.models.get(String(entry.id))!, routes)),
  }
}

function catalogOf(entries: readonly ModelEntry[], providers: Catalog['providers']): Catalog {
  const prices = buildPriceList(entries)
  const names = entries.flatMap((entry) => idsOf(entry).map((id) => [id, entry.upstream_model ?? entry.id] as const))
  return { prices, providers, routes: undefined, upstreamNames: new Map(names), warnings: [] }
}

function idsOf({ id, aliases = [] }: Pick<ModelEntry, 'id' | 'aliases'>): readonly string[] {
  return [id, ...aliases]
}

/** Applies the rules of MODELS_FILE, and names the other file in errors. */
function buildListedPrices(entries: readonly ModelEntry[]): PriceList {
  try {
    return buildPriceList(entries)
  } catch (error) {
    if (error instanceof InvalidModelsFileError) {
      throw new InvalidProvidersFileError([error.problem.replace(/^entry (\d+)/, 'models[$1]')])
    }
    throw error
  }
}

/** Warns about prices below cost: they are allowed, but usually a mistake. */
function lossesOf(model: Model, routes: ListedModel['routes']): string[] {
  const kinds = [
    ['input', 'inputPerMillion'],
    ['output', 'outputPerMillion'],
  ] as const
  return routes.flatMap(({ provider, rates }) =>
    kinds.flatMap(([kind, member]: readonly [string, 'inputPerMillion' | 'outputPerMillion']) =>
      rates === undefined || model[member] >= rates[member]
        ? []
        : [
            `PROVIDERS_FILE: ${model.id} sells ${kind} for ${usdc(model[member])} USDC per million tokens; ${provider} charges ${usdc(rates[member])}.`,
          ],
    ),
  )
}

function usdc(atomic: bigint): string {
  return format(fromAtomic(atomic))
}

/** The providers for each model. */
export function routingTable(config: Config, catalog: Catalog, sandbox: SandboxReady | undefined): RoutingTable {
  const providers = catalog.providers ?? ownProviders(config, sandbox)
  const { upstreamNames } = catalog
  const everywhere = () =>
    new Map(
      [...upstreamNames].map(([id, model]) => [
        id,
        providers.map(({ id: provider }, priority) => ({ provider, model, priority, weight: 1, rates: undefined })),
      ]),
    )
  return { providers, routes: catalog.routes ?? everywhere(), deadlineMs: config.upstreamTimeouts.totalMs }
}

/** One provider from the settings, or the sandbox's. */
export function ownProviders(
  { upstream, upstreamTimeouts, requestsMax }: Config,
  sandbox: SandboxReady | undefined,
): readonly ProviderSettings[] {
  const first: ProviderSettings = {
    id: upstream === undefined ? 'sandbox' : 'upstream',
    protocol: upstream?.protocol ?? 'responses',
    baseUrl: upstream?.baseUrl ?? sandbox!.model!.url,
    apiKey: upstream?.apiKey,
    headers: {},
    timeouts: upstreamTimeouts,
    slowMs: undefined,
    // A request uses one provider at a time, so an account's share of the requests is also its share of these.
    concurrencyMax: requestsMax,
    concurrencyPerAccountMin: requestsMax,
  }
  const backup = upstream === undefined ? sandbox?.model?.backup : undefined
  if (backup === undefined) return [first]
  return [first, { ...first, id: 'sandbox-backup', protocol: 'chat-completions', baseUrl: backup.url }]
}
