import { networkInterfaces } from 'node:os'
import type { SearchConfig } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import { createDocumentationSite, documentationHost } from './documentation-site.ts'
import { createWebFetch } from './fetch-page.ts'
import { createPageReader } from './page-reader.ts'
import { type Ask, createAsk } from './providers/ask.ts'
import { createBrave } from './providers/brave.ts'
import { createExa } from './providers/exa.ts'
import type { ProviderError, SearchProvider } from './providers/provider.ts'
import { createSearxng } from './providers/searxng.ts'
import { createTavily } from './providers/tavily.ts'
import { createResolve } from './resolve.ts'
import { createSafeFetch, safeFetchLimits } from './safe-fetch.ts'
import { createSafePost, type SafePost, safePostLimits } from './safe-post.ts'
import { searchWithFallback } from './search-with-fallback.ts'
import { hostOf } from './untrusted-url.ts'
import type { WebFetch } from './web-fetch.ts'
import type { WebSearch } from './web-search.ts'

export type WebToolsOptions = {
  readonly config: { readonly search: readonly SearchConfig[] | undefined }
  /** The sandbox's search, if it runs. Used only while no provider is configured. */
  readonly sandboxSearchUrl: string | undefined
  readonly publicUrl: string
  readonly version: string
  /** For the operator's log: called for each failed provider, even if another one answered. */
  readonly onProviderFailure: (error: ProviderError) => void
}

/** The tools that the service runs for a model. */
export type WebTools = {
  /** Undefined when no provider is configured and no sandbox runs. */
  readonly search: WebSearch | undefined
  readonly fetch: WebFetch
}

/** Creates web search and web fetch. The caller closes them. */
export function createWebTools(options: WebToolsOptions): WebTools & { close(): Promise<void> } {
  const { config, sandboxSearchUrl, publicUrl } = options
  const connections = createAsk()
  const reader = createPageReader()
  const fetch = createSafeFetch({
    resolve: createResolve(),
    ownHosts: [hostOf(new URL(publicUrl)).replace(/\.$/, '')],
    ownAddresses: ownAddresses(),
    sites: new Map(
      sandboxSearchUrl === undefined ? [] : [[documentationHost, createDocumentationSite(sandboxSearchUrl)]],
    ),
    userAgent: `PennyRouter/${options.version} (+${publicUrl})`,
    limits: safeFetchLimits,
  })
  const providers = providersOf(config.search, sandboxSearchUrl, connections.ask)
  return {
    search:
      providers.length === 0 ? undefined : searchWithFallback({ providers, onFailure: options.onProviderFailure }),
    fetch: createWebFetch({ fetch, reader, now: () => performance.now() }),
    async close() {
      await Promise.all([connections.close(), reader.close()])
    },
  }
}

function providersOf(
  configured: readonly SearchConfig[] | undefined,
  sandboxSearchUrl: string | undefined,
  ask: Ask,
): SearchProvider[] {
  if (configured === undefined) return sandboxSearchUrl === undefined ? [] : [createSearxng(sandboxSearchUrl, ask)]
  const create = {
    exa: (key: string) => createExa(key, ask),
    brave: (key: string) => createBrave(key, ask),
    tavily: (key: string) => createTavily(key, ask),
    searxng: (url: string) => createSearxng(url, ask),
  }
  return configured.map(({ provider, credential }) => create[provider](credential))
}

/** The only way to post to untrusted hosts. */
export function openSafePost(options: {
  readonly publicUrl: string
  readonly version: string
  readonly allowsLoopback: boolean
}): SafePost {
  const { publicUrl, version, allowsLoopback } = options
  return createSafePost({
    resolve: createResolve(),
    ownHosts: [hostOf(new URL(publicUrl)).replace(/\.$/, '')],
    ownAddresses: ownAddresses(),
    userAgent: `PennyRouter/${version} (+${publicUrl})`,
    allowsLoopback,
    limits: safePostLimits,
  })
}

/**
 * All addresses of this machine. A public one among them would lead back to this machine, bypassing its reverse proxy and firewall.
 */
function ownAddresses(): string[] {
  try {
    return Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address))
  } catch (error) {
    // Without the list, web fetch could reach this machine by its public address.
    throw new OperatorError(
      `The addresses of this machine cannot be listed (${(error as Error).message}). Allow netlink sockets: under systemd, add AF_NETLINK to RestrictAddressFamilies.`,
    )
  }
}
