import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Address } from 'viem'
import { runAsChild } from '../src/process/child.ts'
import { startAdminServer } from './admin.ts'
import { sandboxContracts } from './chain/contracts.ts'
import { startChainServer } from './chain/server.ts'
import { type ModelTrouble, startModelServer } from './model/server.ts'
import { startSearchServer } from './search/server.ts'

/** Settings of the sandbox process: the stand-ins for everything that is not configured. */
export type SandboxSettings = {
  readonly host: string
  readonly dataDir: string
  /** Undefined: the upstream is a real one. Port 0 means any free port; a restart uses the previous port. */
  readonly model:
    | { readonly port: number; readonly backupPort: number | undefined; readonly tokensPerSecond: number }
    | undefined
  /** Undefined: the search is a real one, or there is none. */
  readonly search: { readonly port: number } | undefined
  /** Undefined: the chain is a real one. */
  readonly chain: { readonly port: number; readonly gatewayOperator: Address; readonly isPublic: boolean } | undefined
}

export type SandboxReady = {
  /** `backup` is a second server, for failover. */
  readonly model: (Listening & { readonly backup: Listening | undefined }) | undefined
  readonly search: Listening | undefined
  readonly chain: SandboxChain | undefined
}

type Listening = { readonly url: string; readonly port: number }

export type SandboxChain = {
  readonly url: string
  readonly port: number
  readonly chainId: number
  readonly usdc: Address
  readonly gateway: Address
}

/** Arc's chain ids are 5042 and 504200x. This one differs, so that wallets do not mistake the sandbox for Arc. */
const sandboxChainId = 5_042_999

const root = fileURLToPath(new URL('..', import.meta.url))

runAsChild({ title: 'penny-sandbox', isInBackground: false, start })

async function start(settings: SandboxSettings): Promise<SandboxReady> {
  const { host } = settings
  const { tokensPerSecond = 0, backupPort } = settings.model ?? {}
  const model = settings.model && (await startModelServer({ host, port: settings.model.port, tokensPerSecond }))
  const backup =
    backupPort === undefined ? undefined : await startModelServer({ host, port: backupPort, tokensPerSecond })
  const search = settings.search && (await startSearchServer({ host: settings.host, port: settings.search.port, root }))
  const chain = settings.chain && (await startChain(settings, settings.chain, model?.trouble))
  return {
    model: model && { url: model.url, port: model.port, backup: backup && { url: backup.url, port: backup.port } },
    search: search && { url: search.url, port: search.port },
    chain,
  }
}

async function startChain(
  { host, dataDir }: SandboxSettings,
  { port, gatewayOperator, isPublic }: NonNullable<SandboxSettings['chain']>,
  model: ModelTrouble | undefined,
): Promise<SandboxChain> {
  const folder = join(dataDir, 'chain')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const chain = await startChainServer({
    host,
    port,
    dataDir: folder,
    chainId: sandboxChainId,
    contracts: sandboxContracts(gatewayOperator),
    gasHolders: [gatewayOperator],
    isPublic,
    onFailure: (error) => {
      console.error(error)
      process.exit(1)
    },
  })
  await startAdminServer(host, dataDir, { chain: chain.admin, model })
  const { usdc, gateway } = chain.addresses
  return { url: chain.url, port: chain.port, chainId: sandboxChainId, usdc, gateway }
}
