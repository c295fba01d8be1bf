import { isDeepStrictEqual } from 'node:util'
import type { SandboxReady } from '../../sandbox/start.ts'
import { InvalidConfigError } from '../config/setting.ts'
import { packageVersion } from '../process/package-version.ts'
import { Router } from '../providers/router.ts'
import type { RoutingTable } from '../providers/routes.ts'
import { createWebTools, type WebTools } from '../tools/web-tools.ts'
import { type LiveCatalog, loadCatalog, routingTable } from './catalog.ts'
import type { StartContext } from './start-context.ts'

/** Opens the router over the models' providers. */
export function openRouter({ log, stack }: StartContext, table: RoutingTable): Router {
  const router = new Router({
    table,
    clock: { now: () => performance.now(), schedule },
    onFailure: ({ provider, model }, error) => log.warn({ provider, model, err: error }, 'a provider failed'),
  })
  stack.defer(() => router.close())
  return router
}

/**
 * Reads PROVIDERS_FILE again. Requests in flight stay with their provider. Throws, and changes nothing, when the file is invalid or
 * changes what is sold. Returns the warnings.
 */
export function reloadProviders(
  { config, log }: Pick<StartContext, 'config' | 'log'>,
  router: Router,
  live: LiveCatalog,
): readonly string[] {
  if (config.providersFile === undefined) throw new InvalidConfigError('PROVIDERS_FILE is not set: nothing to reload.')
  const catalog = loadCatalog(config)
  if (!isDeepStrictEqual(catalog.prices, live.current.prices)) {
    throw new InvalidConfigError(
      'PROVIDERS_FILE: models, prices or limits have changed. A reload replaces providers and upstreams only: restart the service.',
    )
  }
  router.use(routingTable(config, catalog, undefined))
  live.current = catalog
  log.info({ providers: router.health.map(({ provider }) => provider) }, 'the providers were reloaded')
  return catalog.warnings
}

function schedule(milliseconds: number, run: () => void): () => void {
  const timer = setTimeout(run, milliseconds).unref()
  return () => clearTimeout(timer)
}

/** Opens the web tools for models. */
export function openWeb(
  { config, log, stack }: StartContext,
  sandbox: SandboxReady | undefined,
  publicUrl: string,
): WebTools {
  const tools = createWebTools({
    config,
    sandboxSearchUrl: sandbox?.search?.url,
    publicUrl,
    version: packageVersion,
    onProviderFailure: (error) => log.warn({ err: error }, 'a search provider failed'),
  })
  stack.defer(() => tools.close())
  return tools
}
