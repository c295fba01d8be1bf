import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createPublicClient, http } from 'viem'
import { rpcUrlsOf } from '../chain/nodes.ts'
import { type Config, embeddedDefaults } from '../config/config.ts'
import { reasonOf } from '../errors.ts'
import { listModels } from '../providers/list-models.ts'
import type { ProviderSettings, Route } from '../providers/routes.ts'
import { loadCatalog, ownProviders, routingTable } from '../run/catalog.ts'
import { readSettlementEndpoints, type SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Address } from '../signer/address.ts'
import { fingerprintOf, readConfiguredKey } from '../signer/master-key.ts'
import { createWebTools } from '../tools/web-tools.ts'
import { type Finding, failed, ok, skipped, warning } from './finding.ts'

const askMsMax = 8_000
const gasMinWei = 10n ** 18n

export function checkSettings(config: Config): readonly Finding[] {
  const findings: Finding[] = []
  const { publicUrl, production, trustProxy } = config
  const isLocal = publicUrl === undefined || ['localhost', '127.0.0.1', '[::1]'].includes(new URL(publicUrl).hostname)
  if (!isLocal && !publicUrl!.startsWith('https:'))
    findings.push(
      failed(
        'address',
        `PUBLIC_URL, ${publicUrl}, is not https, so keys and sessions would travel unencrypted.`,
        'Put a TLS proxy in front of the service, and set PUBLIC_URL to its https address.',
      ),
    )
  else if (production && isLocal)
    findings.push(
      failed(
        'address',
        'NODE_ENV is production, but PUBLIC_URL is not set: links and receipts would name localhost.',
        'Set PUBLIC_URL to the address that customers use.',
      ),
    )
  else findings.push(ok('address', publicUrl ?? `http://localhost:${config.port}`))
  // The service itself speaks only http: an https address means that there is a proxy.
  if (publicUrl?.startsWith('https:') === true && !trustProxy)
    findings.push(
      failed(
        'proxy',
        'PUBLIC_URL is https, so there is a proxy, but TRUST_PROXY is not set: all clients share one IP address and its rate limits.',
        'Set TRUST_PROXY=1, and make sure that the proxy overwrites x-forwarded-for.',
      ),
    )
  const embedded = embeddedDefaults(config)
  if (production && embedded.length > 0)
    findings.push(
      failed(
        'production',
        `The embedded default of ${embedded.join(', ')} is active.`,
        'Set them, or start with --allow-embedded.',
      ),
    )
  return findings
}

/** For each provider: whether it answers, accepts the key, and has the models that are routed to it. */
export async function checkProviders(config: Config): Promise<readonly Finding[]> {
  if (config.upstream === undefined && config.providersFile === undefined)
    return [skipped('upstream', 'The sandbox model is used.')]
  const { providers, routes } = readRoutes(config)
  return Promise.all(
    providers.map((provider) => {
      const models = routes.filter((route) => route.provider === provider.id).map(({ model }) => model)
      return checkProvider(config, provider, [...new Set(models)])
    }),
  )
}

function readRoutes(config: Config): { providers: readonly ProviderSettings[]; routes: readonly Route[] } {
  try {
    const { providers, routes } = routingTable(config, loadCatalog(config), undefined)
    return { providers, routes: [...routes.values()].flat() }
  } catch {
    // The check of the models reports a mistake in a file. A single upstream can still be checked.
    return { providers: config.upstream === undefined ? [] : ownProviders(config, undefined), routes: [] }
  }
}

async function checkProvider(
  { providersFile }: Config,
  provider: ProviderSettings,
  models: readonly string[],
): Promise<Finding> {
  const { id, baseUrl, apiKey } = provider
  const isListed = providersFile !== undefined
  const check = isListed ? `provider ${id}` : 'upstream'
  const key = isListed ? `providers.${id}.api_key` : 'UPSTREAM_API_KEY'
  const place = new URL(baseUrl).host
  try {
    const { status, ids: listed } = await listModels(provider, AbortSignal.timeout(askMsMax))
    if (status === 401 || status === 403)
      return apiKey === undefined
        ? failed(
            check,
            `${place} requires a key, and ${key} is not set.`,
            `Set ${key}, or ${key}${isListed ? '_file' : '_FILE'}.`,
          )
        : failed(check, `${place} rejects ${key} (${status}).`, 'Set a valid key.')
    if (status >= 500)
      return warning(
        check,
        `${place} answers ${status}.`,
        'Ask the provider. Requests fail until then and are not charged.',
      )
    // Some servers add a tag to the name: `llama3:latest`.
    const missing = models.filter((model) => !listed.some((one) => one === model || one.startsWith(`${model}:`)))
    if (listed.length > 0 && missing.length > 0)
      return warning(
        check,
        `${place} does not list ${missing.join(', ')}.`,
        'Requests for a model that it does not know fail: correct its name there, or the upstream that serves it.',
      )
    return ok(check, `${place} answers${apiKey === undefined ? ', without a key' : ' to the key'}.`)
  } catch (error) {
    const setting = isListed ? `providers.${id}.base_url` : 'UPSTREAM_BASE_URL'
    return failed(
      check,
      `${place} cannot be reached: ${reasonOf(error)}.`,
      `Check ${setting} and the network of this machine.`,
    )
  }
}

/** Runs one real search: nothing else shows whether the provider accepts the key. */
export async function checkSearch(config: Config): Promise<readonly Finding[]> {
  if (config.search === undefined) return [skipped('search', 'The sandbox search is used.')]
  return Promise.all(
    config.search.map(async ({ provider, credential }) => {
      const check = `search (${provider})`
      let failure: unknown
      const tools = createWebTools({
        config: { ...config, search: [{ provider, credential }] },
        sandboxSearchUrl: undefined,
        publicUrl: 'http://localhost',
        version: 'doctor',
        onProviderFailure: (error) => (failure = error),
      })
      try {
        await tools.search!.search('penny', AbortSignal.timeout(askMsMax), 'doctor')
        return ok(check, 'It answers.')
      } catch (error) {
        const variable = provider === 'searxng' ? 'SEARXNG_URL' : `${provider.toUpperCase()}_API_KEY`
        return failed(
          check,
          `It does not answer: ${reasonOf(failure ?? error)}.`,
          `Check ${variable} and the provider's account.`,
        )
      } finally {
        await tools.close()
      }
    }),
  )
}

async function askNode(url: string) {
  const client = createPublicClient({ transport: http(url, { timeout: askMsMax, retryCount: 0 }) })
  const { host } = new URL(url)
  try {
    return { host, client, chainId: await client.getChainId(), finding: undefined }
  } catch (error) {
    const finding = failed(
      'chain',
      `The chain node in CHAIN_RPC_URL (${host}) does not respond: ${reasonOf(error, url)}.`,
      'Check the URL and its key, or use another provider.',
    )
    return { host, client, chainId: undefined, finding }
  }
}

export async function checkChain(config: Config): Promise<readonly Finding[]> {
  const { chain } = config
  if (chain === undefined) return [skipped('chain', 'The sandbox chain is used.')]
  const known = knownEndpoints(config.dataDir)
  const nodes = await Promise.all(rpcUrlsOf(chain.rpcUrl).map(askNode))
  const usable = nodes.find(({ chainId }) => chainId !== undefined)
  const findings = nodes.flatMap(({ finding }) => finding ?? [])
  if (usable === undefined) return findings
  const { client, chainId } = usable
  const other = nodes.find((node) => node.chainId !== undefined && node.chainId !== chainId)
  if (other !== undefined) {
    return [
      failed(
        'chain',
        `CHAIN_RPC_URL names nodes of two chains: ${chainId} and ${other.chainId} (${other.host}).`,
        'Remove the nodes of the other chain. The service leaves them out.',
      ),
    ]
  }
  if (known !== undefined && known.terms.chainId !== chainId)
    return [
      failed(
        'chain',
        `CHAIN_RPC_URL is a node of chain ${chainId}, but this data folder was used with chain ${known.terms.chainId}.`,
        'Use a node of the previous chain: deposits and signatures belong to it.',
      ),
    ]
  const responding = nodes.filter((node) => node.chainId !== undefined).length
  findings.push(ok('chain', `Chain ${chainId} responds: ${responding} of ${nodes.length} nodes.`))
  const contracts = { USDC_ADDRESS: chain.usdcAddress, GATEWAY_WALLET_ADDRESS: chain.gatewayWalletAddress }
  for (const [name, address] of Object.entries(contracts)) {
    const code = await client.getCode({ address: address as Address }).catch(() => undefined)
    findings.push(
      code === undefined || code === '0x'
        ? failed(
            'contracts',
            `${name} ${address} has no code on chain ${chainId}.`,
            `Set ${name} to the contract's address on this chain.`,
          )
        : ok('contracts', `${name} is a contract.`),
    )
  }
  if (known !== undefined) findings.push(await checkGas(client, known.relayer))
  return findings
}

async function checkGas(
  client: { getBalance(of: { address: Address }): Promise<bigint> },
  relayer: Address,
): Promise<Finding> {
  const balance = await client.getBalance({ address: relayer }).catch(() => undefined)
  if (balance === undefined) return skipped('gas', 'The balance of the relayer cannot be read.')
  if (balance >= gasMinWei) return ok('gas', 'The relayer has gas.')
  return failed(
    'gas',
    `The relayer ${relayer} has less than 1 USDC for gas.`,
    'It is refilled from settled revenue automatically. If there is none yet, send it native USDC: deposits wait for it.',
  )
}

/** The data folder stores the fingerprint of its first key: another key would give every account another address. */
export async function checkMasterKey({ dataDir, masterKey, settles, isMasterKeyIgnored }: Config): Promise<Finding> {
  if (isMasterKeyIgnored)
    return warning(
      'master key',
      'MASTER_KEY is set, but ROLES has no jobs: this machine does not sign.',
      'Remove it from this machine, so that an attacker who gets in does not find it.',
    )
  if (!settles) return skipped('master key', 'ROLES has no jobs: this machine does not sign.')
  const known = readText(join(dataDir, 'master.fingerprint'))
  if (masterKey === undefined) {
    if (known !== undefined && readText(join(dataDir, 'master.key')) === undefined)
      return failed(
        'master key',
        `MASTER_KEY is not set, but this data folder was made with one (fingerprint ${known}).`,
        'Set the same key again. Without it, the money of the accounts cannot be moved.',
      )
    return ok('master key', 'Stored in the data folder. Back it up.')
  }
  let fingerprint: string
  try {
    fingerprint = fingerprintOf(await readConfiguredKey(masterKey))
  } catch (error) {
    return failed('master key', (error as Error).message, 'Correct MASTER_KEY_FILE.')
  }
  if (known === undefined || known === fingerprint) return ok('master key', `Fingerprint ${fingerprint}.`)
  return failed(
    'master key',
    `MASTER_KEY (fingerprint ${fingerprint}) is not the key of this data folder (${known}).`,
    'Set the previous key, or use another DATA_DIR.',
  )
}

function knownEndpoints(dataDir: string): SettlementEndpoints | undefined {
  try {
    return readSettlementEndpoints(dataDir)
  } catch {
    return undefined
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    return undefined
  }
}
