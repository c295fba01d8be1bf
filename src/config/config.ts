import { availableParallelism, homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { fromAtomic, min, parse } from '../money/usdc.ts'
import { readDatabaseServers } from './database-url.ts'
import { InvalidConfigError } from './setting.ts'
import { type ConfigEntry, type Environment, SettingReader } from './setting-reader.ts'
import { type SettingName, type searchProviders, settings } from './settings.ts'

/** All settings. This file is the only reader of the environment. What each does is in `settings.ts`. */
export type Config = Readonly<ReturnType<typeof buildConfig>>

export type LogLevel = Config['logLevel']
export type SearchProviderName = (typeof searchProviders)[number]
export type SearchConfig = { readonly provider: SearchProviderName; readonly credential: string }

/** Only the signer reads the file, at each of its starts: no other process ever has the key. */
export type MasterKeySource = { readonly value: string } | { readonly file: string }

export type ChainConfig = NonNullable<Config['chain']>
export type UpstreamConfig = NonNullable<Config['upstream']>
export type UpstreamProtocol = UpstreamConfig['protocol']
export type UpstreamTimeouts = Config['upstreamTimeouts']

type Read = SettingReader['read']

/** The process that reads the environment: the gateway must not get the service's keys, nor the service the relayer's. */
export type ConfigReader = 'service' | 'gateway'

const searchCredentials = {
  exa: 'EXA_API_KEY',
  brave: 'BRAVE_API_KEY',
  tavily: 'TAVILY_API_KEY',
  searxng: 'SEARXNG_URL',
} as const satisfies Record<SearchProviderName, SettingName>

const minuteMs = 60_000
const defaultWebProcessesMax = 8

// Variables that every process needs besides its settings: to find files and hosts, to format text, and to be debugged. `pg` reads its
// own.
const inherited =
  /^(PATH|HOME|USER|TMPDIR|TZ|LANG|LC_.*|XDG_.*|NO_COLOR|SSL_CERT_.*|NODE_EXTRA_CA_CERTS|NODE_OPTIONS|NODE_COMPILE_CACHE|NODE_V8_COVERAGE|PG.*)$/

/**
 * The environment of our child processes. Their settings come over a channel instead: the environment of a process is readable in
 * /proc, and a child must not have secrets that it does not need, least of all the master key.
 */
export function childEnvironment(environment: Environment = process.env): Record<string, string> {
  const names = Object.keys(environment).filter((name) => inherited.test(name))
  return Object.fromEntries(names.map((name) => [name, environment[name]!]))
}

/** Names by which variables of other programs may be secret. */
const foreignSecret = /_(KEY|TOKEN|HEADERS)$/

/**
 * Removes secrets from `process.env` once the configuration is read, so that code with access to it cannot find them. /proc still
 * shows the environment that the process was started with; only a `_FILE` variable keeps a secret out of there.
 */
export function removeSecrets(environment: Record<string, string | undefined> = process.env): void {
  for (const name of Object.keys(environment)) {
    // The URL of a chain node may contain an API key.
    const isSecret = name === 'CHAIN_RPC_URL' || (name in settings && 'isSecret' in settings[name as SettingName])
    if (isSecret || foreignSecret.test(name)) delete environment[name]
  }
}

/** Whether a production machine that signs was given its key in a variable instead of a file. */
export function isMasterKeyInline({ production, masterKey }: Config): boolean {
  return production && masterKey !== undefined && 'value' in masterKey
}

/** Reads and checks the environment. Throws one line that names the invalid variable and the accepted values. */
export function readConfig(environment: Environment = process.env, reader: ConfigReader = 'service'): Config {
  return buildConfig(new SettingReader(environment), reader)
}

/** Every variable that is read, with its value and origin. */
export function describeConfig(
  environment: Environment = process.env,
  reader: ConfigReader = 'service',
): readonly ConfigEntry[] {
  const read = new SettingReader(environment)
  buildConfig(read, reader)
  return read.entries
}

function buildConfig(settings: SettingReader, reader: ConfigReader) {
  const read = settings.read.bind(settings)
  const settles = readSettles(read)
  const signs = reader === 'service' && settles
  const isProduction = read('NODE_ENV') === 'production'
  return {
    production: isProduction,
    port: read('PORT'),
    host: read('HOST'),
    /** Undefined: `http://localhost:PORT`, known once the port is bound. */
    publicUrl: read('PUBLIC_URL'),
    trustProxy: read('TRUST_PROXY'),
    dataDir: resolve(read('DATA_DIR')),
    logLevel: read('LOG_LEVEL'),
    noColor: read('NO_COLOR') !== undefined,
    userConfigDir: resolve(read('XDG_CONFIG_HOME') ?? join(homedir(), '.config'), 'penny'),
    /** Undefined: an embedded PostgreSQL in `dataDir`. */
    databaseUrl: readDatabaseUrl(read),
    ledgerPartitions: read('LEDGER_PARTITIONS'),
    /** Undefined: the sandbox model. */
    upstream: readUpstream(read),
    /** Undefined: the sandbox chain and gateway. */
    chain: reader === 'service' ? readChain(read) : undefined,
    /** Only for `penny gateway`. */
    gateway: reader === 'gateway' ? readGateway(read) : undefined,
    /** In order of preference; empty: no search. Undefined: the sandbox search. */
    search: readSearch(read),
    /** Set only if `settles`: no other machine may be able to sign. Undefined: created in `dataDir`. */
    masterKey: signs ? readMasterKey(settings) : undefined,
    /** The machine was given a master key that it does not use. */
    isMasterKeyIgnored: reader === 'service' && !signs && settings.isGiven('MASTER_KEY'),
    /** Whether this machine also signs and settles. */
    settles,
    /** Undefined: an address whose key is derived from the master key. */
    sellerAddress: read('SELLER_ADDRESS'),
    /** The only address that `penny payout` may pay. */
    payoutAddress: read('PAYOUT_ADDRESS'),
    sweepMin: read('SWEEP_MIN_USDC'),
    withdrawalMin: read('WITHDRAWAL_MIN_USDC'),
    /** Undefined: the head of the chain at the first start, before any address exists. */
    depositsFromBlock: read('DEPOSITS_FROM_BLOCK'),
    /** Part of every payment nonce. Changed only as the last resort after a restore: docs/runbooks/backup.md. */
    settlementEpoch: read('SETTLEMENT_EPOCH'),
    gatewayBatchMs: read('GATEWAY_BATCH_MS'),
    metricsToken: read('METRICS_TOKEN'),
    /** Undefined: alerts are not mailed. */
    mail: readMail(read),
    operators: (read('OPERATORS') ?? []).filter((item) => item !== ''),
    /** Undefined: tracing is off. */
    traces: readTraces(read),
    modelsFile: read('MODELS_FILE'),
    /** Undefined: one provider, `upstream`. */
    providersFile: readProvidersFileName(read),
    replayHours: read('REPLAY_HOURS'),
    refusedDays: read('REFUSED_DAYS'),
    inFlightCap: read('IN_FLIGHT_CAP_USDC'),
    unsettledCap: read('UNSETTLED_CAP_USDC'),
    /** When charges are paid on chain: see `dueRulesOf`. */
    settleAfterMs: read('SETTLE_AFTER_MS'),
    settleMin: read('SETTLE_MIN_USDC'),
    settleLatestMs: read('SETTLE_LATEST_MS'),
    keepaliveAfterMs: read('KEEPALIVE_AFTER_MS'),
    streamKeepaliveMs: read('STREAM_KEEPALIVE_MS'),
    blockedMsMax: read('BLOCKED_MS_MAX'),
    leaseMs: read('LEASE_MS'),
    auditMs: read('AUDIT_MS'),
    fullAuditMs: read('FULL_AUDIT_MS'),
    checkpointMs: read('CHECKPOINT_MS'),
    ownerCooldownMs: read('OWNER_COOLDOWN'),
    notifySocket: read('NOTIFY_SOCKET'),
    shutdownDelayMs: read('SHUTDOWN_DELAY_MS') ?? (isProduction ? 5_000 : 0),
    childStartMs: read('CHILD_START_MS'),
    drainMs: read('DRAIN_MS'),
    bodyBytesMax: read('BODY_BYTES_MAX'),
    bodiesBytesMax: read('BODIES_BYTES_MAX'),
    requestsMax: read('REQUESTS_MAX'),
    webProcesses: readWebProcesses(read),
    upstreamTimeouts: {
      connectMs: read('UPSTREAM_CONNECT_MS'),
      /** From sending the request to receiving the response headers. */
      firstByteMs: read('UPSTREAM_FIRST_BYTE_MS'),
      /** The longest silence within a response. */
      idleMs: read('UPSTREAM_IDLE_MS'),
      /** From sending the request to the last byte. */
      totalMs: read('UPSTREAM_TOTAL_MS'),
    },
    sandboxProviders: read('SANDBOX_PROVIDERS'),
    sandboxTokensPerSecond: read('SANDBOX_TOKENS_PER_SECOND'),
    /** The sandbox chain answers within the limits of Arc's public RPC. */
    sandboxPublicRpc: read('SANDBOX_PUBLIC_RPC'),
    /** The failpoint at which this process exits, and on which pass. */
    failpoint: readFailpoint(read),
  }
}

/** PostgreSQL, settlement and the kernel need the other half of the cores. */
function readWebProcesses(read: Read): number {
  const half = Math.min(Math.max(1, Math.floor(availableParallelism() / 2)), defaultWebProcessesMax)
  const count = read('WEB_PROCESSES') ?? half
  // Other systems cannot share a port between processes.
  return process.platform === 'linux' ? count : 1
}

/** Every machine serves requests. With the role `jobs` it also signs and settles. */
function readSettles(read: Read): boolean {
  const roles = read('ROLES')
  if (!roles.includes('web'))
    throw new InvalidConfigError(
      'ROLES must include web, because every machine serves requests. Use "web" or "web,jobs".',
    )
  return roles.includes('jobs')
}

function readMail(read: Read) {
  const [smtpUrl, from] = [read('SMTP_URL'), read('MAIL_FROM')]
  return smtpUrl === undefined ? undefined : { smtpUrl, from }
}

/** The variables whose embedded default is in use. Production refuses them. */
export function embeddedDefaults(config: Config): readonly string[] {
  const unset: string[] = []
  if (config.databaseUrl === undefined) unset.push('DATABASE_URL')
  if (usesSandboxModel(config)) unset.push('UPSTREAM_BASE_URL')
  if (config.chain === undefined) unset.push('CHAIN_RPC_URL')
  if (config.search === undefined) unset.push('SEARCH_PROVIDER')
  if (config.masterKey === undefined && config.settles) unset.push('MASTER_KEY')
  return unset
}

export function usesSandboxModel({ upstream, providersFile }: Config): boolean {
  return upstream === undefined && providersFile === undefined
}

/** The most that the signer signs for one account in an hour. No single payment may be larger. */
export const hourlyPaymentsMax = parse('1000')

/**
 * When charges are paid on chain. In the sandbox within seconds, so that users can watch. On a real chain the smallest payment is
 * worth 40 to 127 times its gas on our own gateway (contracts/README.md), and no charge waits longer than a day.
 */
export function dueRulesOf(config: Config) {
  const { chain, settleAfterMs, settleMin, settleLatestMs, unsettledCap, inFlightCap } = config
  const [afterMs, paymentMin, latestMs] =
    chain === undefined ? [1_000, '0', 5_000] : [minuteMs, '0.05', 24 * 60 * minuteMs]
  return {
    afterMs: settleAfterMs ?? afterMs,
    min: settleMin ?? parse(paymentMin),
    latestMs: settleLatestMs ?? latestMs,
    cap: unsettledCap,
    // The highest possible debt: all unpaid charges when the last request is admitted, and everything in flight with its extensions.
    max: min(fromAtomic(3n * inFlightCap + unsettledCap), hourlyPaymentsMax),
  }
}

/**
 * Whether webhooks may go to receivers on this machine: only in a sandbox that no other machine can reach. Elsewhere customers could
 * make the service call programs that listen on loopback.
 */
export function allowsLoopbackWebhooks({ chain, production, host, publicUrl, trustProxy }: Config): boolean {
  const hosts = [host, ...(publicUrl === undefined ? [] : [new URL(publicUrl).hostname])]
  const isAlone = hosts.every((name) => ['127.0.0.1', 'localhost', '::1', '[::1]'].includes(name)) && !trustProxy
  return chain === undefined && !production && isAlone
}

/** Milliseconds: a day where money is real, 0 in the sandbox. */
export function ownerCooldownOf({ ownerCooldownMs, chain }: Config): number {
  return ownerCooldownMs ?? (chain === undefined ? 0 : 24 * 60 * minuteMs)
}

/** Keeps a production service from running on embedded defaults by accident. */
export function refuseEmbeddedInProduction(config: Config, allowEmbedded: boolean): void {
  const unset = embeddedDefaults(config)
  if (!config.production || allowEmbedded || unset.length === 0) return
  throw new InvalidConfigError(
    `NODE_ENV is production, but the embedded default of ${unset.join(', ')} is active. Set ${unset.length === 1 ? 'it' : 'them'}, or start with --allow-embedded.`,
  )
}

function readDatabaseUrl(read: Read): string | undefined {
  const url = read('DATABASE_URL')
  if (url !== undefined) readDatabaseServers(url)
  return url
}

function readUpstream(read: Read) {
  const baseUrl = read('UPSTREAM_BASE_URL')
  const apiKey = read('UPSTREAM_API_KEY')
  const protocol = read('UPSTREAM_PROTOCOL')
  if (baseUrl !== undefined) return { baseUrl, apiKey, protocol }
  if (protocol !== 'responses') {
    throw new InvalidConfigError('UPSTREAM_PROTOCOL is set, but UPSTREAM_BASE_URL is not. Set both, or neither.')
  }
  if (apiKey === undefined) return undefined
  throw new InvalidConfigError(
    'UPSTREAM_API_KEY is set, but UPSTREAM_BASE_URL is not. Set both, or neither for the sandbox model.',
  )
}

function readProvidersFileName(read: Read): string | undefined {
  const file = read('PROVIDERS_FILE')
  if (file === undefined || read('UPSTREAM_BASE_URL') === undefined) return file
  throw new InvalidConfigError('PROVIDERS_FILE and UPSTREAM_BASE_URL are both set: keep one.')
}

function readChain(read: Read) {
  const values = {
    CHAIN_RPC_URL: read('CHAIN_RPC_URL'),
    GATEWAY_URL: read('GATEWAY_URL'),
    USDC_ADDRESS: read('USDC_ADDRESS'),
    GATEWAY_WALLET_ADDRESS: read('GATEWAY_WALLET_ADDRESS'),
  }
  const missing = Object.entries(values).filter(([, value]) => value === undefined)
  if (missing.length === Object.keys(values).length) return undefined
  if (missing.length > 0) {
    throw new InvalidConfigError(
      `${missing.map(([name]) => name).join(', ')} must be set too. A real chain needs all of ${Object.keys(values).join(', ')}.`,
    )
  }
  return {
    /** One URL, or several separated by commas. */
    rpcUrl: values.CHAIN_RPC_URL!,
    depositLogs: read('DEPOSIT_LOGS'),
    gatewayUrl: values.GATEWAY_URL!,
    /** For our own gateway. Circle's needs none. */
    gatewayToken: read('GATEWAY_TOKEN'),
    usdcAddress: values.USDC_ADDRESS!,
    gatewayWalletAddress: values.GATEWAY_WALLET_ADDRESS!,
    /** The contract that pays withdrawals: Circle's minter. Our own gateway pays them itself. */
    gatewayMinterAddress: read('GATEWAY_MINTER_ADDRESS') ?? values.GATEWAY_WALLET_ADDRESS!,
    /** The gateway's number for the chain: 26 for Arc at Circle. Our own gateway uses the chain id. */
    gatewayDomain: read('GATEWAY_DOMAIN'),
    usdcName: read('USDC_NAME'),
    usdcVersion: read('USDC_VERSION'),
  }
}

function readGateway(read: Read) {
  const values = {
    GATEWAY_RELAYER_KEY: read('GATEWAY_RELAYER_KEY'),
    GATEWAY_TOKEN: read('GATEWAY_TOKEN'),
    DATABASE_URL: readDatabaseUrl(read),
    CHAIN_RPC_URL: read('CHAIN_RPC_URL'),
    USDC_ADDRESS: read('USDC_ADDRESS'),
    GATEWAY_WALLET_ADDRESS: read('GATEWAY_WALLET_ADDRESS'),
  }
  const missing = Object.entries(values).filter(([, value]) => value === undefined)
  if (missing.length > 0) {
    throw new InvalidConfigError(
      `The gateway needs settings that are not set: ${missing.map(([name]) => name).join(', ')}.`,
    )
  }
  const seller = read('SELLER_ADDRESS')
  return {
    // Not HOST: an image that opens the service to its network must not open the gateway with it.
    host: read('GATEWAY_HOST'),
    port: read('GATEWAY_PORT'),
    /** Undefined: the seller of the service on this `DATA_DIR`. */
    payees: read('GATEWAY_PAYEES') ?? (seller === undefined ? undefined : [seller]),
    token: values.GATEWAY_TOKEN!,
    databaseUrl: values.DATABASE_URL!,
    rpcUrl: values.CHAIN_RPC_URL!,
    usdcAddress: values.USDC_ADDRESS!,
    gatewayWalletAddress: values.GATEWAY_WALLET_ADDRESS!,
    relayerKey: `0x${values.GATEWAY_RELAYER_KEY!.replace(/^0x/i, '')}` as const,
    firstBlock: read('GATEWAY_FIRST_BLOCK'),
    batchMs: read('GATEWAY_BATCH_MS'),
    gasPriceMaxGwei: read('GATEWAY_GAS_PRICE_MAX_GWEI'),
  }
}

function readSearch(read: Read): readonly SearchConfig[] | undefined {
  return read('SEARCH_PROVIDER')?.map((provider) => {
    const name = searchCredentials[provider]
    const credential = read(name)
    if (credential !== undefined) return { provider, credential }
    throw new InvalidConfigError(`SEARCH_PROVIDER includes ${provider}, so ${name} must be set too.`)
  })
}

function readTraces(read: Read) {
  const endpoint = read('OTEL_EXPORTER_OTLP_ENDPOINT')
  const headers = (read('OTEL_EXPORTER_OTLP_HEADERS') ?? '').split(',').filter((pair) => pair.trim() !== '')
  const pairs = headers.map((pair) => [/^[^=]*/.exec(pair)![0].trim(), pair.slice(pair.indexOf('=') + 1).trim()])
  const serviceName = read('OTEL_SERVICE_NAME')
  return endpoint === undefined ? undefined : { endpoint, serviceName, headers: Object.fromEntries(pairs) as Headers }
}

type Headers = Readonly<Record<string, string>>

function readMasterKey(settings: SettingReader): MasterKeySource | undefined {
  const file = settings.secretFile('MASTER_KEY')
  if (file !== undefined) return { file: resolve(file) }
  const value = settings.read('MASTER_KEY')
  if (value === undefined && settings.read('CHAIN_RPC_URL') !== undefined) {
    throw new InvalidConfigError(
      'MASTER_KEY must be set when CHAIN_RPC_URL is, because all account keys are derived from it.',
    )
  }
  return value === undefined ? undefined : { value }
}

function readFailpoint(read: Read) {
  const value = read('FAILPOINT')
  if (value === undefined) return undefined
  if (read('NODE_ENV') === 'production')
    throw new InvalidConfigError('FAILPOINT kills the service for a test. Do not set it in production.')
  const [name, reach] = value.split(':')
  return { name: name!, reach: Number(reach ?? 1) }
}
