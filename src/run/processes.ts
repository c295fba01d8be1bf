import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { GatewayReady, GatewaySettings } from '../../gateway/start.ts'
import { sandboxClient } from '../../sandbox/client.ts'
import type { SandboxReady, SandboxSettings } from '../../sandbox/start.ts'
import { type Config, dueRulesOf, hourlyPaymentsMax, ownerCooldownOf, usesSandboxModel } from '../config/config.ts'
import { OperatorError } from '../errors.ts'
import type { SettleReady, SettleSettings } from '../jobs/settle.ts'
import { beginDeposits } from '../ledger/chain-cursors.ts'
import { requireEpoch } from '../ledger/epoch.ts'
import { createOnce } from '../process/create-once.ts'
import { settlementFailpointOf } from '../process/failpoints.ts'
import { supervise } from '../process/supervisor.ts'
import type { Hex } from '../receipts/hex.ts'
import { requireContracts, requireSeller } from '../settlement/published-terms.ts'
import { type SettlementEndpoints, writeSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Address } from '../signer/address.ts'
import type { SignerReady, SignerSettings } from '../signer/signer-process.ts'
import { payOutMax, refillFactorMax, type SigningTerms } from '../signer/signing-terms.ts'
import type { Databases } from './databases.ts'
import type { StartContext } from './start-context.ts'

/** Input for starting the signer, gateway and settlement processes. The supervisor restarts each one that dies. */
type MoneyContext = StartContext & { readonly databases: Databases; readonly publicUrl: string }

// Loaded on demand: the chain code is hundreds of files that a machine without the role `jobs` never needs.
const chainModule = () => import('../settlement/chain.ts')

const gatewayOperatorFile = 'gateway-operator.key'
const gatewayTokenFile = 'gateway-token'
const withdrawalFeeMax = 2_010_000n
const gasMin = 1_000_000n
const refillMax = refillFactorMax * gasMin
const sandboxGas = 1_000_000_000n
const hourlyAuthorizationsMax = { accountMax: hourlyPaymentsMax.toString(), totalMax: '1000000000000' }
const hourlyPayingOutMax = { accountMax: payOutMax.toString(), totalMax: '1000000000000' }
/** One refill an hour is requested. The rest is for signatures that were lost before they were stored. */
const hourlyRefillsMax = { accountMax: `${3n * refillMax}`, totalMax: `${3n * refillMax}` }

/** Starts stand-ins for everything that is not configured, in a separate process. Undefined when everything is real. */
export async function startSandbox(context: StartContext): Promise<SandboxReady | undefined> {
  const { config, log, stack, onProgress, signal } = context
  const needs = {
    model: usesSandboxModel(config),
    search: config.search === undefined,
    chain: usesSandboxChain(config),
  }
  const names = Object.entries(needs).flatMap(([name, isNeeded]) => (isNeeded ? [name] : []))
  if (names.length === 0) return undefined
  onProgress(`Starting the sandbox: ${names.join(', ')}.`)
  const gatewayOperator = needs.chain ? await addressOf(await operatorKey(config.dataDir)) : undefined
  const sandbox = await supervise<SandboxSettings, SandboxReady>({
    name: 'the sandbox',
    signal,
    readyMsMax: config.childStartMs,
    module: new URL('../../sandbox/start.ts', import.meta.url),
    settings: (previous) => ({
      host: '127.0.0.1',
      dataDir: config.dataDir,
      model: needs.model
        ? {
            port: previous?.model?.port ?? 0,
            backupPort: config.sandboxProviders > 1 ? (previous?.model?.backup?.port ?? 0) : undefined,
            tokensPerSecond: config.sandboxTokensPerSecond,
          }
        : undefined,
      search: needs.search ? { port: previous?.search?.port ?? 0 } : undefined,
      chain: gatewayOperator && {
        port: previous?.chain?.port ?? 0,
        gatewayOperator,
        isPublic: config.sandboxPublicRpc,
      },
    }),
    onRestart: (exit) => log.warn({ exit }, 'the sandbox process exited; restarting it'),
  })
  stack.defer(() => sandbox.stop())
  return sandbox.ready
}

/** A production install leaves out what only the sandbox needs. Call it before anything is created. */
export function refuseMissingSandboxChain(config: Config): void {
  if (!usesSandboxChain(config)) return
  try {
    import.meta.resolve('hardhat/hre')
  } catch (error) {
    throw new OperatorError(
      'The chain of the sandbox is not installed: a production install leaves it out. To try the service out, run `npm install hardhat@3` beside it, or build the image with `--target sandbox`. For real money set CHAIN_RPC_URL, GATEWAY_URL, USDC_ADDRESS and GATEWAY_WALLET_ADDRESS.',
      error,
    )
  }
}

function usesSandboxChain({ chain, settles }: Config): boolean {
  return chain === undefined && settles
}

/** Starts signing and settlement. Undefined on a machine that does neither. */
export async function startSettlementServices(
  context: MoneyContext,
  sandbox: SandboxReady | undefined,
): Promise<SettlementEndpoints | undefined> {
  const { config, onProgress } = context
  if (!config.settles) return undefined
  const chain = config.chain === undefined ? sandboxTerms(sandbox!.chain!) : await realTerms(config.chain)
  const published = await requireContracts(context.databases.jobs, chain.terms)
  await requireEpoch(context.databases.jobs, config.settlementEpoch)
  const { chainOptions, openChain, refuseUnusableNode } = await chainModule()
  await beginDeposits({
    database: context.databases.jobs,
    readHead: () => refuseUnusableNode(chain.rpcUrl, async () => (await openChain(chainOptions(chain))).finalBlock()),
    fromBlock: config.depositsFromBlock,
  })
  onProgress('Starting the signer.')
  const signer = await startSigner(context, chain.terms, published?.issuer)
  await requireSeller(context.databases.jobs, signer.seller)
  const terms: SigningTerms = { ...chain.terms, seller: signer.seller }
  const relayer = { address: signer.relayer, key: signer.relayerKey! }
  if (config.chain === undefined) await sandboxClient(config.dataDir).gas(relayer.address, sandboxGas)
  onProgress('Starting settlement.')
  const gateway = config.chain ?? (await startGateway(context, chain, signer.seller))
  const { gatewayUrl, gatewayToken } = gateway
  const { issuer } = signer
  await startSettlement(context, { ...chain, gatewayUrl, gatewayToken, terms, issuer, relayer })
  const endpoints = { rpcUrl: chain.rpcUrl, gatewayUrl, gatewayToken, terms, issuer, relayer: relayer.address }
  writeSettlementEndpoints(config.dataDir, endpoints)
  return endpoints
}

type ChainTerms = { readonly rpcUrl: string; readonly terms: Omit<SigningTerms, 'seller'> }

function sandboxTerms({ url, chainId, usdc, gateway }: NonNullable<SandboxReady['chain']>): ChainTerms {
  const gatewayWallet = lower(gateway)
  return {
    rpcUrl: url,
    terms: {
      chainId,
      usdc: { address: lower(usdc), name: 'USDC', version: '2' },
      gatewayWallet,
      gatewayMinter: gatewayWallet,
      gatewayDomain: chainId,
    },
  }
}

async function realTerms(chain: NonNullable<Config['chain']>): Promise<ChainTerms> {
  const usdc = lower(chain.usdcAddress)
  const gatewayWallet = lower(chain.gatewayWalletAddress)
  const { openChain, refuseUnusableNode } = await chainModule()
  const { rpcUrl } = chain
  const { chainId } = await refuseUnusableNode(rpcUrl, () => openChain({ rpcUrl, usdc, gatewayWallet }))
  return {
    rpcUrl,
    terms: {
      chainId,
      usdc: { address: usdc, name: chain.usdcName, version: chain.usdcVersion },
      gatewayWallet,
      gatewayMinter: lower(chain.gatewayMinterAddress),
      gatewayDomain: chain.gatewayDomain ?? chainId,
    },
  }
}

async function startSigner(
  { config, log, stack, signal }: MoneyContext,
  terms: Omit<SigningTerms, 'seller'>,
  issuer: Address | undefined,
): Promise<SignerReady> {
  const signer = await supervise<SignerSettings, SignerReady>({
    name: 'the signer',
    signal,
    readyMsMax: config.childStartMs,
    module: new URL('../signer/signer-process.ts', import.meta.url),
    settings: () => ({
      dataDir: config.dataDir,
      logLevel: config.logLevel,
      masterKey: config.masterKey,
      issuer,
      terms: { ...terms, seller: config.sellerAddress === undefined ? undefined : lower(config.sellerAddress) },
      payoutAddress: config.payoutAddress === undefined ? undefined : lower(config.payoutAddress),
      ownerWaitMs: ownerCooldownOf(config),
      handOutRelayerKey: true,
      limits: {
        authorizationMax: dueRulesOf(config).max.toString(),
        withdrawalFeeMax: withdrawalFeeMax.toString(),
        refillMax: refillMax.toString(),
      },
      hourlyLimits: {
        authorizations: hourlyAuthorizationsMax,
        payingOut: hourlyPayingOutMax,
        refills: hourlyRefillsMax,
      },
    }),
    onRestart: (exit) => log.warn({ exit }, 'the signer exited; restarting it'),
  })
  stack.defer(() => signer.stop())
  return signer.ready
}

/** Starts our own gateway, for the sandbox. Operators that run it separately set GATEWAY_URL. */
async function startGateway(
  { config, databases, log, stack, signal }: MoneyContext,
  { rpcUrl, terms }: ChainTerms,
  seller: Address,
): Promise<{ readonly gatewayUrl: string; readonly gatewayToken: string }> {
  const token = await secretIn(config.dataDir, gatewayTokenFile)
  const relayerKey = await operatorKey(config.dataDir)
  const gateway = await supervise<GatewaySettings, GatewayReady>({
    name: 'the gateway',
    signal,
    readyMsMax: config.childStartMs,
    module: new URL('../../gateway/start.ts', import.meta.url),
    settings: (previous) => ({
      host: '127.0.0.1',
      port: previous?.port ?? 0,
      logLevel: config.logLevel,
      databaseUrl: databases.url,
      chainRpcUrl: rpcUrl,
      chainId: terms.chainId,
      usdcAddress: terms.usdc.address,
      gatewayWalletAddress: terms.gatewayWallet,
      payees: [seller],
      token,
      relayerKey,
      batchMs: config.gatewayBatchMs,
      withdrawalMin: config.withdrawalMin.toString(),
    }),
    onRestart: (exit) => log.warn({ exit }, 'the gateway exited; restarting it'),
  })
  stack.defer(() => gateway.stop())
  return { gatewayUrl: gateway.ready.url, gatewayToken: token }
}

async function startSettlement(
  { config, databases, publicUrl, log, stack, signal }: MoneyContext,
  endpoints: ChainTerms & {
    gatewayUrl: string
    gatewayToken: string | undefined
    terms: SigningTerms
    issuer: Address
    relayer: SettleSettings['relayer']
  },
): Promise<void> {
  const due = dueRulesOf(config)
  let lives = 0
  const settlement = await supervise<SettleSettings, SettleReady>({
    name: 'settlement',
    signal,
    readyMsMax: config.childStartMs,
    module: new URL('../jobs/settle.ts', import.meta.url),
    settings: () => ({
      dataDir: config.dataDir,
      logLevel: config.logLevel,
      databaseUrl: databases.url,
      publicUrl,
      rpcUrl: endpoints.rpcUrl,
      depositLogs: config.chain?.depositLogs,
      gatewayUrl: endpoints.gatewayUrl,
      gatewayToken: endpoints.gatewayToken,
      terms: endpoints.terms,
      issuer: endpoints.issuer,
      relayer: endpoints.relayer,
      epoch: config.settlementEpoch,
      due: { ...due, min: due.min.toString(), cap: due.cap.toString(), max: due.max.toString() },
      sweepMin: config.sweepMin.toString(),
      minesOnDemand: config.chain === undefined,
      withdrawalFeeMax: (config.chain === undefined ? 0n : withdrawalFeeMax).toString(),
      gasMin: gasMin.toString(),
      failpoint: settlementFailpointOf(config.failpoint, lives++),
    }),
    onRestart: (exit) => log.warn({ exit }, 'settlement exited; restarting it'),
  })
  stack.defer(() => settlement.stop())
}

async function addressOf(key: Hex): Promise<Address> {
  const { privateKeyToAddress } = await import('viem/accounts')
  return lower(privateKeyToAddress(key))
}

/** The key that owns the sandbox's gateway and pays its gas. */
async function operatorKey(dataDir: string): Promise<Hex> {
  return `0x${await secretIn(dataDir, gatewayOperatorFile)}`
}

/** 64 hex digits, created at the first start and readable by their owner alone. */
async function secretIn(dataDir: string, file: string): Promise<string> {
  const path = join(dataDir, file)
  if (!existsSync(path)) await createOnce(path, randomBytes(32).toString('hex'))
  return readFileSync(path, 'utf8').trim()
}

function lower(address: string): Address {
  return address.toLowerCase() as Address
}
