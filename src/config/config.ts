import { availableParallelism, homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { fromAtomic, min, parse, type Usdc } from '../money/usdc.ts'
import { readDatabaseServers } from './database-url.ts'
import { type ConfigEntry, type Environment, InvalidConfigError, SettingReader } from './setting-reader.ts'
import { type SettingName, settings } from './settings.ts'

/** All settings. This file is the only reader of the environment. */
export type Config = {
  readonly production: boolean
  readonly port: number
  readonly host: string
  /** Undefined: `http://localhost:PORT`, known once the port is bound. */
  readonly publicUrl: string | undefined
  readonly trustProxy: boolean
  readonly dataDir: string
  readonly logLevel: LogLevel
  readonly noColor: boolean
  /** Where `penny login` stores its session. */
  readonly userConfigDir: string
  /** Undefined: an embedded PostgreSQL in `dataDir`. */
  readonly databaseUrl: string | undefined
  readonly ledgerPartitions: number
  /** Undefined: the sandbox model. */
  readonly upstream: UpstreamConfig | undefined
  /** Undefined: the sandbox chain and gateway. */
  readonly chain: ChainConfig | undefined
  /** Only for `penny gateway`. */
  readonly gateway: GatewayConfig | undefined
  /** In order of preference; empty: no search. Undefined: the sandbox search. */
  readonly search: readonly SearchConfig[] | undefined
  /** Set only if `settles`: no other machine may be able to sign. Undefined: created in `dataDir`. */
  readonly masterKey: MasterKeySource | undefined
  /** The machine was given a master key that it does not use. */
  readonly isMasterKeyIgnored: boolean
  /** Whether this machine also signs and settles. */
  readonly settles: boolean
  /** The address that receives revenue. Undefined: an address whose key is derived from the master key. */
  readonly sellerAddress: string | undefined
  /** The only address that `penny payout` may pay. */
  readonly payoutAddress: string | undefined
  /** Smaller deposits wait until they add up to this: a sweep costs gas. */
  readonly sweepMin: Usdc
  /** A smaller withdrawal must take the whole remainder: paying it out costs gas. */
  readonly withdrawalMin: Usdc
  /** The first block that is searched for deposits. Undefined: the head of the chain at the first start, before any address exists. */
  readonly depositsFromBlock: number | undefined
  /** Part of every payment nonce. Changed only as the last resort after a restore: docs/runbooks/backup.md. */
  readonly settlementEpoch: number
  /** How long our own gateway collects payments for one batch. */
  readonly gatewayBatchMs: number
  readonly metricsToken: string | undefined
  /** Undefined: alerts are not mailed. */
  readonly mail: { readonly smtpUrl: string; readonly from: string | undefined } | undefined
  /** Account ids and sign-in wallets with access to the operator's pages. */
  readonly operators: readonly string[]
  /** Where spans are sent. Undefined: tracing is off. */
  readonly traces: TracesConfig | undefined
  readonly modelsFile: string | undefined
  /** Undefined: one provider, `upstream`. */
  readonly providersFile: string | undefined
  /** How long answers are kept for retries; at most a day. */
  readonly replayHours: number
  /** How long refused requests stay in the log. */
  readonly refusedDays: number
  readonly inFlightCap: Usdc
  readonly unsettledCap: Usdc
  /** When charges are paid on chain: see `dueRulesOf`. */
  readonly settleAfterMs: number | undefined
  readonly settleMin: Usdc | undefined
  readonly settleLatestMs: number | undefined
  /** After this time a buffered answer commits its headers and sends white space to keep the connection open. */
  readonly keepaliveAfterMs: number
  /** A stream that is silent for this long gets a comment line. */
  readonly streamKeepaliveMs: number
  /** A client that reads nothing of its answer for this long counts as disconnected. */
  readonly blockedMsMax: number
  readonly leaseMs: number
  /** How often the progress of open streams is stored. */
  readonly checkpointMs: number
  /** How often active accounts are audited, and how often all accounts are. */
  readonly auditMs: number
  readonly fullAuditMs: number
  readonly ownerCooldownMs: number | undefined
  /** How long a stopping service still accepts requests, so that load balancers notice first. */
  readonly shutdownDelayMs: number
  /** The socket of systemd's readiness notification. */
  readonly notifySocket: string | undefined
  readonly drainMs: number
  /** Startup timeout of a child process. */
  readonly childStartMs: number
  readonly bodyBytesMax: number
  /** Limit for all bodies that are being read at the same time. */
  readonly bodiesBytesMax: number
  readonly requestsMax: number
  /** Processes that serve requests on the same port. */
  readonly webProcesses: number
  readonly upstreamTimeouts: UpstreamTimeouts
  /** 2: the sandbox model has a backup provider. */
  readonly sandboxProviders: number
  /** Writing speed of the sandbox model; 0: as fast as possible. */
  readonly sandboxTokensPerSecond: number
  /** For fault tests: the failpoint at which this process exits, and on which pass. */
  readonly failpoint: { readonly name: string; readonly reach: number } | undefined
}

export type LogLevel = (typeof logLevels)[number]
export type SearchProviderName = keyof typeof searchCredentials
export type SearchConfig = { readonly provider: SearchProviderName; readonly credential: string }

/** Only the signer reads the file, at each of its starts: no other process ever has the key. */
export type MasterKeySource = { readonly value: string } | { readonly file: string }

export type ChainConfig = {
  readonly rpcUrl: string
  readonly gatewayUrl: string
  /** For our own gateway. Circle's needs none. */
  readonly gatewayToken: string | undefined
  readonly usdcAddress: string
  readonly gatewayWalletAddress: string
  /** The contract that pays withdrawals: Circle's minter. Our own gateway pays them itself. */
  readonly gatewayMinterAddress: string
  /** The gateway's number for the chain: 26 for Arc at Circle. Our own gateway uses the chain id. */
  readonly gatewayDomain: number | undefined
  readonly usdcName: string
  readonly usdcVersion: string
}

/** Settings of our own settlement gateway. */
export type GatewayConfig = {
  readonly host: string
  readonly port: number
  /** Undefined: the seller of the service on this `DATA_DIR`. */
  readonly payees: readonly string[] | undefined
  readonly token: string
  readonly databaseUrl: string
  readonly rpcUrl: string
  readonly usdcAddress: string
  readonly gatewayWalletAddress: string
  readonly relayerKey: `0x${string}`
  readonly firstBlock: number
  readonly batchMs: number
  readonly gasPriceMaxGwei: number
}

/** The process that reads the environment: the gateway must not get the service's keys, nor the service the relayer's. */
export type ConfigReader = 'service' | 'gateway'

export type TracesConfig = {
  readonly endpoint: string
  readonly headers: Readonly<Record<string, string>>
  readonly serviceName: string
}

export type UpstreamConfig = {
  readonly baseUrl: string
  readonly apiKey: string | undefined
  readonly protocol: UpstreamProtocol
}

export type UpstreamProtocol = (typeof upstreamProtocols)[number]

export type UpstreamTimeouts = {
  readonly connectMs: number
  /** From sending the request to receiving the response headers. */
  readonly firstByteMs: number
  /** The longest silence within a response. */
  readonly idleMs: number
  /** From sending the request to the last byte. */
  readonly totalMs: number
}

export const upstreamProtocols = ['responses', 'chat-completions'] as const
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
const searchCredentials = {
  exa: 'EXA_API_KEY',
  brave: 'BRAVE_API_KEY',
  tavily: 'TAVILY_API_KEY',
  searxng: 'SEARXNG_URL',
} as const

const minuteMs = 60_000
const webProcessesMax = 64
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
    const isSecret = name === 'CHAIN_RPC_URL' || settings[name as SettingName]?.isSecret === true
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

function buildConfig(read: SettingReader, reader: ConfigReader): Config {
  const settles = readSettles(read)
  const signs = reader === 'service' && settles
  const isProduction = read.text('NODE_ENV') === 'production'
  return {
    production: isProduction,
    port: read.integer('PORT', 8402, 0, 65_535),
    host: read.text('HOST', '127.0.0.1'),
    publicUrl: read.origin('PUBLIC_URL'),
    trustProxy: read.flag('TRUST_PROXY'),
    dataDir: resolve(read.text('DATA_DIR', '.penny')),
    logLevel: read.oneOf('LOG_LEVEL', logLevels, 'info'),
    noColor: read.text('NO_COLOR') !== undefined,
    userConfigDir: resolve(read.text('XDG_CONFIG_HOME', join(homedir(), '.config')), 'penny'),
    databaseUrl: readDatabaseUrl(read),
    ledgerPartitions: read.integer('LEDGER_PARTITIONS', 1, 1, 1024),
    upstream: readUpstream(read),
    chain: reader === 'service' ? readChain(read) : undefined,
    gateway: reader === 'gateway' ? readGateway(read) : undefined,
    search: readSearch(read),
    masterKey: signs ? readMasterKey(read) : undefined,
    isMasterKeyIgnored: reader === 'service' && !signs && read.isGiven('MASTER_KEY'),
    settles,
    sellerAddress: read.address('SELLER_ADDRESS'),
    payoutAddress: read.address('PAYOUT_ADDRESS'),
    sweepMin: read.amount('SWEEP_MIN_USDC', '0.10'),
    withdrawalMin: read.amount('WITHDRAWAL_MIN_USDC', '0.10'),
    depositsFromBlock: read.optionalInteger('DEPOSITS_FROM_BLOCK', 0, Number.MAX_SAFE_INTEGER),
    settlementEpoch: read.integer('SETTLEMENT_EPOCH', 0, 0, 2 ** 32 - 1),
    gatewayBatchMs: read.integer('GATEWAY_BATCH_MS', 2_000, 10, 60 * minuteMs),
    metricsToken: read.secret('METRICS_TOKEN'),
    mail: readMail(read),
    operators: readOperatorList(read),
    traces: readTraces(read),
    modelsFile: read.text('MODELS_FILE'),
    providersFile: readProvidersFileName(read),
    replayHours: read.integer('REPLAY_HOURS', 24, 1, 24),
    refusedDays: read.integer('REFUSED_DAYS', 90, 1, 36_500),
    inFlightCap: read.amount('IN_FLIGHT_CAP_USDC', '1.00'),
    unsettledCap: read.amount('UNSETTLED_CAP_USDC', '5'),
    settleAfterMs: read.optionalInteger('SETTLE_AFTER_MS', 0, 24 * 60 * minuteMs),
    settleMin: read.optionalAmount('SETTLE_MIN_USDC'),
    settleLatestMs: read.optionalInteger('SETTLE_LATEST_MS', 0, 30 * 24 * 60 * minuteMs),
    keepaliveAfterMs: read.integer('KEEPALIVE_AFTER_MS', 45_000, 10, 10 * minuteMs),
    streamKeepaliveMs: read.integer('STREAM_KEEPALIVE_MS', 15_000, 10, minuteMs),
    blockedMsMax: read.integer('BLOCKED_MS_MAX', 30_000, 10, 10 * minuteMs),
    leaseMs: read.integer('LEASE_MS', 15_000, 200, 10 * minuteMs),
    auditMs: read.integer('AUDIT_MS', minuteMs, 10, 60 * minuteMs),
    fullAuditMs: read.integer('FULL_AUDIT_MS', 60 * minuteMs, 10, 7 * 24 * 60 * minuteMs),
    checkpointMs: read.integer('CHECKPOINT_MS', 2_000, 10, minuteMs),
    ownerCooldownMs: read.optionalInteger('OWNER_COOLDOWN', 0, 365 * 24 * 60 * minuteMs),
    notifySocket: read.text('NOTIFY_SOCKET'),
    shutdownDelayMs: read.integer('SHUTDOWN_DELAY_MS', isProduction ? 5_000 : 0, 0, 10 * minuteMs),
    childStartMs: read.integer('CHILD_START_MS', 2 * minuteMs, 1_000, 60 * minuteMs),
    drainMs: read.integer('DRAIN_MS', 30_000, 0, 60 * minuteMs),
    bodyBytesMax: read.integer('BODY_BYTES_MAX', 4 * 1024 * 1024, 1024, 64 * 1024 * 1024),
    bodiesBytesMax: read.integer('BODIES_BYTES_MAX', 256 * 1024 * 1024, 1024 * 1024, 64 * 1024 * 1024 * 1024),
    requestsMax: read.integer('REQUESTS_MAX', 10_000, 1, 1_000_000),
    webProcesses: readWebProcesses(read),
    upstreamTimeouts: {
      connectMs: read.integer('UPSTREAM_CONNECT_MS', 5_000, 10, minuteMs),
      firstByteMs: read.integer('UPSTREAM_FIRST_BYTE_MS', 5 * minuteMs, 10, 60 * minuteMs),
      idleMs: read.integer('UPSTREAM_IDLE_MS', 5 * minuteMs, 10, 60 * minuteMs),
      totalMs: read.integer('UPSTREAM_TOTAL_MS', 20 * minuteMs, 10, 24 * 60 * minuteMs),
    },
    sandboxProviders: read.integer('SANDBOX_PROVIDERS', 1, 1, 2),
    sandboxTokensPerSecond: read.integer('SANDBOX_TOKENS_PER_SECOND', 60, 0, 1_000_000),
    failpoint: readFailpoint(read),
  }
}

/** PostgreSQL, settlement and the kernel need the other half of the cores. */
function readWebProcesses(read: SettingReader): number {
  const half = Math.min(Math.max(1, Math.floor(availableParallelism() / 2)), defaultWebProcessesMax)
  const count = read.optionalInteger('WEB_PROCESSES', 1, webProcessesMax) ?? half
  // Other systems cannot share a port between processes.
  return process.platform === 'linux' ? count : 1
}

/** Every machine serves requests. With the role `jobs` it also signs and settles. */
function readSettles(read: SettingReader): boolean {
  const roles = read.list('ROLES', ['web', 'jobs'])
  if (!roles.includes('web'))
    throw new InvalidConfigError(
      'ROLES must include web, because every machine serves requests. Use "web" or "web,jobs".',
    )
  return roles.includes('jobs')
}

function readMail(read: SettingReader): Config['mail'] {
  const smtpUrl = read.secret('SMTP_URL')
  const from = read.text('MAIL_FROM')
  if (from !== undefined && !/^[^\r\n]*[^\s@<>]+@[^\s@<>]+>?$/.test(from))
    throw new InvalidConfigError(
      `MAIL_FROM must be an e-mail address such as "Penny <alerts@example.com>", got "${from}".`,
    )
  if (smtpUrl === undefined) return undefined
  if (!/^smtps?:$/.test(URL.parse(smtpUrl)?.protocol ?? ''))
    throw new InvalidConfigError(
      'SMTP_URL must begin with smtp:// or smtps://, such as smtps://user:password@mail.example.com.',
    )
  return { smtpUrl, from }
}

function readOperatorList(read: SettingReader): readonly string[] {
  const items = (read.text('OPERATORS') ?? '').split(',').map((item) => item.trim())
  const listed = items.filter((item) => item !== '')
  const wrong = listed.find((item) => !/^(0x[0-9a-f]{40}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/i.test(item))
  if (wrong === undefined) return listed
  throw new InvalidConfigError(
    `OPERATORS must list account ids or wallet addresses, separated by commas; "${wrong}" is neither.`,
  )
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

function readDatabaseUrl(read: SettingReader): string | undefined {
  const url = read.secret('DATABASE_URL')
  if (url !== undefined) readDatabaseServers(url)
  return url
}

function readUpstream(read: SettingReader): Config['upstream'] {
  const baseUrl = read.url('UPSTREAM_BASE_URL')
  const apiKey = read.secret('UPSTREAM_API_KEY')
  const protocol = read.oneOf('UPSTREAM_PROTOCOL', upstreamProtocols, 'responses')
  if (baseUrl !== undefined) return { baseUrl, apiKey, protocol }
  if (protocol !== 'responses') {
    throw new InvalidConfigError('UPSTREAM_PROTOCOL is set, but UPSTREAM_BASE_URL is not. Set both, or neither.')
  }
  if (apiKey === undefined) return undefined
  throw new InvalidConfigError(
    'UPSTREAM_API_KEY is set, but UPSTREAM_BASE_URL is not. Set both, or neither for the sandbox model.',
  )
}

function readProvidersFileName(read: SettingReader): string | undefined {
  const file = read.text('PROVIDERS_FILE')
  if (file === undefined || read.text('UPSTREAM_BASE_URL') === undefined) return file
  throw new InvalidConfigError('PROVIDERS_FILE and UPSTREAM_BASE_URL are both set: keep one.')
}

function readChain(read: SettingReader): ChainConfig | undefined {
  const values = {
    CHAIN_RPC_URL: read.url('CHAIN_RPC_URL'),
    GATEWAY_URL: read.url('GATEWAY_URL'),
    USDC_ADDRESS: read.address('USDC_ADDRESS'),
    GATEWAY_WALLET_ADDRESS: read.address('GATEWAY_WALLET_ADDRESS'),
  }
  const missing = Object.entries(values).filter(([, value]) => value === undefined)
  if (missing.length === Object.keys(values).length) return undefined
  if (missing.length > 0) {
    throw new InvalidConfigError(
      `${missing.map(([name]) => name).join(', ')} must be set too. A real chain needs all of ${Object.keys(values).join(', ')}.`,
    )
  }
  return {
    rpcUrl: values.CHAIN_RPC_URL!,
    gatewayUrl: values.GATEWAY_URL!,
    gatewayToken: readGatewayToken(read),
    usdcAddress: values.USDC_ADDRESS!,
    gatewayWalletAddress: values.GATEWAY_WALLET_ADDRESS!,
    gatewayMinterAddress: read.address('GATEWAY_MINTER_ADDRESS') ?? values.GATEWAY_WALLET_ADDRESS!,
    gatewayDomain: read.optionalInteger('GATEWAY_DOMAIN', 0, 2 ** 32 - 1),
    usdcName: read.text('USDC_NAME') ?? 'USDC',
    usdcVersion: read.text('USDC_VERSION') ?? '2',
  }
}

function readGateway(read: SettingReader): GatewayConfig {
  const relayerKey = read.secret('GATEWAY_RELAYER_KEY')
  const values = {
    GATEWAY_RELAYER_KEY: relayerKey,
    GATEWAY_TOKEN: readGatewayToken(read),
    DATABASE_URL: readDatabaseUrl(read),
    CHAIN_RPC_URL: read.url('CHAIN_RPC_URL'),
    USDC_ADDRESS: read.address('USDC_ADDRESS'),
    GATEWAY_WALLET_ADDRESS: read.address('GATEWAY_WALLET_ADDRESS'),
  }
  const missing = Object.entries(values).filter(([, value]) => value === undefined)
  if (missing.length > 0) {
    throw new InvalidConfigError(
      `The gateway needs settings that are not set: ${missing.map(([name]) => name).join(', ')}.`,
    )
  }
  if (!/^(0x)?[0-9a-f]{64}$/i.test(relayerKey!)) {
    throw new InvalidConfigError(
      'GATEWAY_RELAYER_KEY must be 64 hex digits: the key of an address that pays gas and owns nothing else.',
    )
  }
  const seller = read.address('SELLER_ADDRESS')
  return {
    // Not HOST: an image that opens the service to its network must not open the gateway with it.
    host: read.text('GATEWAY_HOST', '127.0.0.1'),
    port: read.integer('GATEWAY_PORT', 8403, 0, 65_535),
    payees: read.addresses('GATEWAY_PAYEES') ?? (seller === undefined ? undefined : [seller]),
    token: values.GATEWAY_TOKEN!,
    databaseUrl: values.DATABASE_URL!,
    rpcUrl: values.CHAIN_RPC_URL!,
    usdcAddress: values.USDC_ADDRESS!,
    gatewayWalletAddress: values.GATEWAY_WALLET_ADDRESS!,
    relayerKey: `0x${relayerKey!.replace(/^0x/i, '')}`,
    firstBlock: read.integer('GATEWAY_FIRST_BLOCK', 0, 0, Number.MAX_SAFE_INTEGER),
    batchMs: read.integer('GATEWAY_BATCH_MS', 2_000, 10, 60 * minuteMs),
    gasPriceMaxGwei: read.integer('GATEWAY_GAS_PRICE_MAX_GWEI', 2_000, 20, 1_000_000),
  }
}

function readGatewayToken(read: SettingReader): string | undefined {
  const token = read.secret('GATEWAY_TOKEN')
  if (token === undefined || /^[\x21-\x7e]{32,512}$/.test(token)) return token
  throw new InvalidConfigError('GATEWAY_TOKEN must have 32 to 512 characters without spaces: openssl rand -hex 32')
}

function readSearch(read: SettingReader): Config['search'] {
  return read.listOf('SEARCH_PROVIDER', Object.keys(searchCredentials) as SearchProviderName[])?.map((provider) => {
    const name = searchCredentials[provider]
    const credential = name === 'SEARXNG_URL' ? read.url(name) : read.secret(name)
    if (credential !== undefined) return { provider, credential }
    throw new InvalidConfigError(`SEARCH_PROVIDER includes ${provider}, so ${name} must be set too.`)
  })
}

function readTraces(read: SettingReader): TracesConfig | undefined {
  const endpoint = read.url('OTEL_EXPORTER_OTLP_ENDPOINT')
  const headers = read.secret('OTEL_EXPORTER_OTLP_HEADERS') ?? ''
  const serviceName = read.text('OTEL_SERVICE_NAME') ?? 'penny'
  if (endpoint === undefined) return undefined
  const pairs = headers.split(',').filter((pair) => pair.trim() !== '')
  const parsed = pairs.map((pair) => /^\s*([\w-]+)\s*=\s*(.*?)\s*$/.exec(pair))
  if (parsed.some((match) => match === null))
    throw new InvalidConfigError('OTEL_EXPORTER_OTLP_HEADERS must have the form name=value,name=value.')
  return { endpoint, serviceName, headers: Object.fromEntries(parsed.map((match) => [match![1]!, match![2]!])) }
}

function readMasterKey(read: SettingReader): MasterKeySource | undefined {
  const file = read.secretFile('MASTER_KEY')
  if (file !== undefined) return { file: resolve(file) }
  const value = read.secret('MASTER_KEY')
  if (value !== undefined && !/^[0-9a-f]{64}$/i.test(value)) {
    throw new InvalidConfigError('MASTER_KEY must be 64 hex digits (32 random bytes): openssl rand -hex 32')
  }
  if (value === undefined && read.text('CHAIN_RPC_URL') !== undefined) {
    throw new InvalidConfigError(
      'MASTER_KEY must be set when CHAIN_RPC_URL is, because all account keys are derived from it.',
    )
  }
  return value === undefined ? undefined : { value }
}

function readFailpoint(read: SettingReader): Config['failpoint'] {
  const value = read.text('FAILPOINT')
  if (value === undefined) return undefined
  if (read.text('NODE_ENV') === 'production') {
    throw new InvalidConfigError('FAILPOINT kills the service for a test. Do not set it in production.')
  }
  const [, name, reach] = /^([a-z0-9_]+)(?::([1-9]\d{0,8}))?$/.exec(value) ?? []
  if (name !== undefined) return { name, reach: Number(reach ?? 1) }
  throw new InvalidConfigError(`FAILPOINT must be a name, or a name and a count such as on_chunk:3, got "${value}".`)
}
