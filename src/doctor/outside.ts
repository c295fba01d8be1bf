import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createPublicClient, http } from 'viem'
import { type Config, embeddedDefaults } from '../config.ts'
import { reasonOf } from '../errors.ts'
import { type MoneyLine, readMoneyLine } from '../settlement/money-line.ts'
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
        `PUBLIC_URL, ${publicUrl}, is not https: keys and sessions would travel in the open.`,
        'Put a proxy with a certificate before the service, and set PUBLIC_URL to its https address.',
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
  // We speak http alone: where people use https, a proxy is between.
  if (publicUrl?.startsWith('https:') === true && !trustProxy)
    findings.push(
      failed(
        'proxy',
        'PUBLIC_URL is https, so a proxy is in front, but TRUST_PROXY is not set: all clients count as one, and share its rate of signing in.',
        'Set TRUST_PROXY=1, and let the proxy write x-forwarded-for itself.',
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

export async function checkUpstream({ upstream }: Config): Promise<Finding> {
  const check = 'upstream'
  if (upstream === undefined) return skipped(check, 'The sandbox model is used.')
  const { baseUrl, apiKey } = upstream
  const place = new URL(baseUrl).host
  try {
    const response = await fetch(`${baseUrl}/models`, {
      headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
      signal: AbortSignal.timeout(askMsMax),
    })
    await response.body?.cancel()
    if (response.status === 401 || response.status === 403)
      return apiKey === undefined
        ? failed(
            check,
            `${place} wants a key and UPSTREAM_API_KEY is not set.`,
            'Set UPSTREAM_API_KEY, or UPSTREAM_API_KEY_FILE.',
          )
        : failed(check, `${place} rejects UPSTREAM_API_KEY (${response.status}).`, 'Set a key that is in force.')
    if (response.status >= 500)
      return warning(check, `${place} answers ${response.status}.`, 'Ask its operator; requests are voided meanwhile.')
    return ok(check, `${place} answers${apiKey === undefined ? ', without a key' : ' to the key'}.`)
  } catch (error) {
    return failed(
      check,
      `${place} cannot be reached: ${reasonOf(error)}.`,
      'Check UPSTREAM_BASE_URL and the way out of this machine.',
    )
  }
}

/** One real search: the only way to know whether a key is taken. */
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
        await tools.search!.search('penny', AbortSignal.timeout(askMsMax))
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

export async function checkChain(config: Config): Promise<readonly Finding[]> {
  const { chain } = config
  if (chain === undefined) return [skipped('chain', 'The sandbox chain is used.')]
  const client = createPublicClient({ transport: http(chain.rpcUrl, { timeout: askMsMax, retryCount: 0 }) })
  const known = knownLine(config.dataDir)
  let chainId: number
  try {
    chainId = await client.getChainId()
  } catch (error) {
    const host = new URL(chain.rpcUrl).host
    return [
      failed(
        'chain',
        `No node answers at CHAIN_RPC_URL (${host}): ${reasonOf(error, chain.rpcUrl)}.`,
        'Check the address and its key; use a second provider.',
      ),
    ]
  }
  if (known !== undefined && known.terms.chainId !== chainId)
    return [
      failed(
        'chain',
        `CHAIN_RPC_URL leads to chain ${chainId}, but this data folder was used with chain ${known.terms.chainId}.`,
        'Set the node of the former chain; deposits and signatures belong to it.',
      ),
    ]
  const findings = [ok('chain', `Chain ${chainId} answers.`)]
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
  if (balance >= gasMinWei) return ok('gas', 'The relayer can pay.')
  return failed(
    'gas',
    `The relayer ${relayer} has less than 1 USDC for gas.`,
    'It is refilled from settled revenue by itself. Where there is none yet, send it some native USDC: deposits wait for it.',
  )
}

/** The data folder remembers the key it was made with: another one would give every account another address. */
export async function checkMasterKey({ dataDir, masterKey, roles, isMasterKeyIgnored }: Config): Promise<Finding> {
  if (isMasterKeyIgnored)
    return warning(
      'master key',
      'MASTER_KEY is set, but ROLES has no jobs: this machine does not sign.',
      'Take it away: whoever breaks in here must not find it.',
    )
  if (!roles.includes('jobs')) return skipped('master key', 'ROLES has no jobs: this machine does not sign.')
  const known = readText(join(dataDir, 'master.fingerprint'))
  if (masterKey === undefined) {
    if (known !== undefined && readText(join(dataDir, 'master.key')) === undefined)
      return failed(
        'master key',
        `MASTER_KEY is not set, but this data folder was made with one (fingerprint ${known}).`,
        'Set the same key again; without it the money of its accounts is out of reach.',
      )
    return ok('master key', 'Kept in the data folder: back it up.')
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
    'Set the former key, or another DATA_DIR.',
  )
}

function knownLine(dataDir: string): MoneyLine | undefined {
  try {
    return readMoneyLine(dataDir)
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
