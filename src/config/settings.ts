import {
  address,
  addresses,
  amount,
  amountOrZero,
  flag,
  inOrder,
  integer,
  listOf,
  matching,
  oneOf,
  origin,
  type Setting,
  secret,
  someOf,
  text,
  unset,
  url,
  urls,
} from './setting.ts'

export const upstreamProtocols = ['responses', 'chat-completions'] as const
export const searchProviders = ['exa', 'brave', 'tavily', 'searxng'] as const
const depositLogs = ['system', 'token'] as const
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour
const mebibyte = 1024 * 1024
const uint32 = 2 ** 32 - 1
const account = /^(0x[0-9a-f]{40}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$/i

/**
 * Every setting, by subject: what it does, its default and what it accepts. `config.ts` reads them; `docs/settings.md` is generated
 * from this list, and `penny config NAME` prints a row of it.
 */
export const settingGroups = {
  'Web server': {
    PORT: integer('Port of the service. 0 picks a free one.', 8402, 0, 65_535),
    HOST: text('Address that the service listens on.', '127.0.0.1'),
    PUBLIC_URL: origin(
      'The URL that people use. It must be https unless it points to this machine.',
      unset('`http://localhost:PORT`'),
    ),
    TRUST_PROXY: flag(
      '1: the service is behind a proxy, and the client’s address is the last one in `x-forwarded-for`.',
    ),
    OPERATORS: listOf(
      'Account ids or sign-in wallet addresses, separated by commas, that may see the operator’s pages at `/operator`.',
      unset('None; in the sandbox, the local developer'),
      account,
      'must list account ids or wallet addresses, separated by commas',
    ),
    WEB_PROCESSES: integer(
      'Processes that serve requests on the same port, on Linux. Each opens up to 23 connections to PostgreSQL. See [Scaling out](guides/scaling-out.md).',
      unset('One for every two cores, at most 8'),
      1,
      64,
    ),
    REQUESTS_MAX: integer('Maximum number of concurrent requests, for each web process.', 10_000, 1, 1_000_000),
    BODY_BYTES_MAX: integer('Size limit of one request body.', 4 * mebibyte, 1024, 64 * mebibyte),
    BODIES_BYTES_MAX: integer(
      'Size limit of all request bodies that are being read, for each web process.',
      256 * mebibyte,
      mebibyte,
      65_536 * mebibyte,
    ),
    KEEPALIVE_AFTER_MS: integer(
      'A buffered answer that takes longer gets its headers now, and white space to keep the connection open.',
      45_000,
      10,
      10 * minute,
    ),
    STREAM_KEEPALIVE_MS: integer('A stream that is silent for this long gets a comment line.', 15_000, 10, minute),
    BLOCKED_MS_MAX: integer('A client that reads nothing for this long is disconnected.', 30_000, 10, 10 * minute),
    SHUTDOWN_DELAY_MS: integer(
      'For this long, a stopping service answers 503 at `/readyz` and keeps serving, so that load balancers stop sending requests before the port closes.',
      unset('`0`, and 5000 with `NODE_ENV=production`'),
      0,
      10 * minute,
    ),
    DRAIN_MS: integer('How long a stopping service waits for running requests.', 30_000, 0, hour),
  },
  'Data and processes': {
    NODE_ENV: text(
      '`production` refuses the embedded database, chain and model unless the service is started with `--allow-embedded`.',
      unset('Embedded services are allowed'),
    ),
    DATA_DIR: text('Folder for the database, keys and logs of the service, relative to the working folder.', '.penny'),
    DATABASE_URL: secret(
      'A PostgreSQL server of version 15 to 18, or several of which one accepts writes: `postgresql://user@host1:5432,host2:5432/name`. See [Failover of PostgreSQL](guides/failover.md).',
      unset('An embedded PostgreSQL in `DATA_DIR`'),
    ),
    NOTIFY_SOCKET: text(
      'Set by systemd for units of `Type=notify`. The service reports there when it is ready and when it stops.',
      unset('Nothing is reported'),
    ),
    LEDGER_PARTITIONS: integer(
      'Partitions of the ledger. Set it before the first account exists. See [Scaling](scaling.md).',
      1,
      1,
      1024,
    ),
    ROLES: someOf(
      'What this machine does: `web` (serves requests) or `web,jobs` (also signs, settles, audits all accounts and sends webhooks and alerts). See [Going to production](guides/production.md).',
      ['web', 'jobs'],
    ),
    CHILD_START_MS: integer(
      'How long the signer, settlement, the gateway and the sandbox may each take to start. Raise it on a slow machine.',
      2 * minute,
      1_000,
      hour,
    ),
    LEASE_MS: integer('How long a node that sends no heartbeat counts as alive.', 15_000, 200, 10 * minute),
    CHECKPOINT_MS: integer('How often the progress of open streams is saved.', 2_000, 10, minute),
    AUDIT_MS: integer('How often the accounts in use are audited.', minute, 10, hour),
    FULL_AUDIT_MS: integer('How often all accounts are audited.', hour, 10, 7 * day),
    REPLAY_HOURS: integer('How long answers are kept for clients that retry.', 24, 1, 24),
    REFUSED_DAYS: integer('How long refused requests stay in the log.', 90, 1, 36_500),
  },
  'Models and search': {
    UPSTREAM_BASE_URL: url('A server with the Responses API or the chat completions API.', unset('The sandbox model')),
    UPSTREAM_PROTOCOL: oneOf(
      'API of that server: `responses`, or `chat-completions` (vLLM, Ollama, LM Studio, llama.cpp, Mistral, DeepSeek, OpenRouter, another Penny Router).',
      'responses',
      upstreamProtocols,
    ),
    UPSTREAM_API_KEY: secret('Key for that server.', unset('None is sent')),
    PROVIDERS_FILE: text(
      'JSON file with several providers, and the models that each of them serves. See [Providers](guides/providers.md). Not together with `UPSTREAM_BASE_URL`.',
      unset('One provider, from `UPSTREAM_BASE_URL`'),
    ),
    MODELS_FILE: text(
      'JSON array of models: `{id, upstream_model, input_per_million, output_per_million, context_length, max_output_tokens, default, aliases}`.',
      unset('The five models of the service'),
    ),
    UPSTREAM_CONNECT_MS: integer('Timeout for the connection to the upstream.', 5_000, 10, minute),
    UPSTREAM_FIRST_BYTE_MS: integer('Timeout for its first byte.', 5 * minute, 10, hour),
    UPSTREAM_IDLE_MS: integer('Timeout between two bytes.', 5 * minute, 10, hour),
    UPSTREAM_TOTAL_MS: integer('Timeout for the whole answer.', 20 * minute, 10, day),
    SEARCH_PROVIDER: inOrder(
      'One or more of `exa`, `brave`, `tavily`, `searxng`, separated by commas and tried in this order; `none` switches web search off. Each needs its own credential below.',
      unset('The sandbox search, over this documentation'),
      searchProviders,
    ),
    EXA_API_KEY: secret('Key for Exa.', unset('Not used')),
    BRAVE_API_KEY: secret('Key for Brave Search.', unset('Not used')),
    TAVILY_API_KEY: secret('Key for Tavily.', unset('Not used')),
    SEARXNG_URL: url('URL of a SearXNG server.', unset('Not used')),
    SANDBOX_PROVIDERS: integer(
      'Providers of the sandbox model: 2 adds a backup that speaks chat completions, to try failover.',
      1,
      1,
      2,
    ),
    SANDBOX_PUBLIC_RPC: flag(
      '1: the sandbox chain answers like Arc’s public RPC. It refuses more than 2 calls and 0.5 searches of logs a second, and three backends have different heads.',
    ),
    SANDBOX_TOKENS_PER_SECOND: integer('Speed of the sandbox model. 0 is as fast as possible.', 60, 0, 1_000_000),
  },
  Money: {
    IN_FLIGHT_CAP_USDC: amount('Maximum amount that the open requests of one account can hold.', '1.00'),
    UNSETTLED_CAP_USDC: amount('Maximum charges of one account that are not yet paid on chain.', '5'),
    SETTLE_AFTER_MS: integer(
      'Charges of an account are paid on chain when the oldest is this old and they reach `SETTLE_MIN_USDC`.',
      unset('60000; in the sandbox 1000'),
      0,
      day,
    ),
    SETTLE_MIN_USDC: amountOrZero('See `SETTLE_AFTER_MS`.', unset('0.05; in the sandbox 0')),
    SETTLE_LATEST_MS: integer(
      'Charges this old are paid on chain, whatever their amount.',
      unset('86400000; in the sandbox 5000'),
      0,
      30 * day,
    ),
    SWEEP_MIN_USDC: amount('Smaller deposits wait until they add up to this.', '0.10'),
    WITHDRAWAL_MIN_USDC: amount(
      'Minimum withdrawal, and minimum refund of a wallet. A smaller one is possible once in 24 hours, if it empties the account.',
      '0.10',
    ),
    OWNER_COOLDOWN: integer(
      'How long a changed withdrawal address waits until it takes effect, in milliseconds.',
      unset('86400000; in the sandbox 0'),
      0,
      365 * day,
    ),
    SELLER_ADDRESS: address('Address that earns the revenue.', unset('An address derived from the master key')),
    PAYOUT_ADDRESS: address('Address that `penny payout` sends revenue to.', unset('No payout')),
    MASTER_KEY: secret(
      '32 random bytes as hex; all account keys are derived from it. Required with a real chain where `ROLES` has `jobs`, optional in the sandbox, ignored without `jobs`. [Keep it safe](runbooks/master-key.md).',
      unset('Generated once in `DATA_DIR`'),
      /^[0-9a-f]{64}$/i,
      'must be 64 hex digits (32 random bytes): openssl rand -hex 32',
    ),
    DEPOSITS_FROM_BLOCK: integer(
      'First block that is searched for deposits.',
      unset('The chain’s newest block at the very first start'),
      0,
      Number.MAX_SAFE_INTEGER,
    ),
    SETTLEMENT_EPOCH: integer('Raise it only [after a restore](runbooks/backup.md), as a last resort.', 0, 0, uint32),
  },
  'Chain and gateway': {
    CHAIN_RPC_URL: urls(
      'JSON-RPC URL of a chain node; or several, separated by commas, the preferred one first: the next is asked while one refuses, lags or fails. A `wss://` address beside them announces new blocks, so that no calls are spent on asking for them, and deposits, so that they are seen immediately. Set all of this, `GATEWAY_URL`, `USDC_ADDRESS` and `GATEWAY_WALLET_ADDRESS`, or none.',
      unset('The sandbox chain and gateway'),
    ),
    DEPOSIT_LOGS: oneOf(
      'Which log tells of deposits: `system`, Arc’s system address, which also logs plain native transfers, or `token`, the USDC contract, on other chains.',
      'system',
      depositLogs,
    ),
    GATEWAY_URL: url('The settlement gateway: Circle’s or your own.', unset('See `CHAIN_RPC_URL`')),
    USDC_ADDRESS: address('The USDC contract.', unset('See `CHAIN_RPC_URL`')),
    GATEWAY_WALLET_ADDRESS: address('The gateway’s wallet contract.', unset('See `CHAIN_RPC_URL`')),
    GATEWAY_MINTER_ADDRESS: address('The contract that pays withdrawals.', unset('`GATEWAY_WALLET_ADDRESS`')),
    GATEWAY_DOMAIN: integer(
      'The gateway’s number for the chain: 26 for Arc at Circle.',
      unset('The chain’s id'),
      0,
      uint32,
    ),
    USDC_NAME: text('Name in the USDC contract’s EIP-712 domain.', 'USDC'),
    USDC_VERSION: text('Version in that domain.', '2'),
    GATEWAY_TOKEN: secret(
      'Bearer token between the service and your own gateway, 32 to 512 characters. Circle’s gateway needs none.',
      unset('None is sent'),
      /^[\x21-\x7e]{32,512}$/,
      'must have 32 to 512 characters without spaces: openssl rand -hex 32',
    ),
    GATEWAY_BATCH_MS: integer('How long your own gateway collects payments for one batch.', 2_000, 10, hour),
    GATEWAY_RELAYER_KEY: secret(
      '`penny gateway` only: key of the address that pays gas.',
      unset('Required there'),
      /^(0x)?[0-9a-f]{64}$/i,
      'must be 64 hex digits: the key of an address that pays gas and owns nothing else',
    ),
    GATEWAY_HOST: text('`penny gateway` only: address that it listens on.', '127.0.0.1'),
    GATEWAY_PORT: integer('`penny gateway` only: its port.', 8403, 0, 65_535),
    GATEWAY_PAYEES: addresses(
      '`penny gateway` only: addresses, separated by commas, whose payments it settles.',
      unset('`SELLER_ADDRESS`, or the seller of the service on the same `DATA_DIR`'),
    ),
    GATEWAY_FIRST_BLOCK: integer('`penny gateway` only: first block that it reads.', 0, 0, Number.MAX_SAFE_INTEGER),
    GATEWAY_GAS_PRICE_MAX_GWEI: integer('`penny gateway` only: the most it pays for gas.', 2_000, 20, 1_000_000),
  },
  'Logs and monitoring': {
    LOG_LEVEL: oneOf(
      '`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`. Logs are JSON lines on standard error.',
      'info',
      logLevels,
    ),
    NO_COLOR: text('Any value switches colors off.', unset('Colors on a terminal')),
    SMTP_URL: secret(
      'Mail server for alerts, such as `smtps://user:password@mail.example.com`; `smtp://` uses STARTTLS where it is offered. See [Alerts](alerts.md).',
      unset('Alerts are not mailed'),
      /^smtps?:/,
      'must begin with smtp:// or smtps://, such as smtps://user:password@mail.example.com',
    ),
    MAIL_FROM: matching(
      'Sender of mail, such as `Penny <alerts@example.com>`.',
      unset('`alerts@` and the host of `PUBLIC_URL`'),
      /^[^\r\n]*[^\s@<>]+@[^\s@<>]+>?$/,
      'must be an e-mail address such as "Penny <alerts@example.com>"',
    ),
    METRICS_TOKEN: secret('Bearer token for `/metrics`.', unset('Anyone may read `/metrics`')),
    OTEL_EXPORTER_OTLP_ENDPOINT: url(
      'Collector that traces are sent to. See [Monitoring](observability.md).',
      unset('No traces'),
    ),
    OTEL_EXPORTER_OTLP_HEADERS: secret(
      'Headers for it: `name=value,name=value`.',
      unset('None'),
      /^\s*[\w-]+\s*=[^,]*(,\s*[\w-]+\s*=[^,]*)*,?\s*$/,
      'must have the form name=value,name=value',
    ),
    OTEL_SERVICE_NAME: text('Name of this service in traces.', 'penny'),
    XDG_CONFIG_HOME: text(
      '`penny login` keeps `penny/login.json` in it, readable by its owner only.',
      unset('`~/.config`'),
    ),
    FAILPOINT: matching(
      'For fault tests: where this process dies. Refused in production.',
      unset('Nowhere'),
      /^[a-z0-9_]+(:[1-9]\d{0,8})?$/,
      'must be a name, or a name and a count such as on_chunk:3',
    ),
  },
} as const satisfies Record<string, Record<string, Setting>>

type Groups = (typeof settingGroups)[keyof typeof settingGroups]
type Merged<Group> = (Group extends unknown ? (group: Group) => void : never) extends (all: infer All) => void
  ? All
  : never

/** By name. */
export const settings: Merged<Groups> = Object.assign({}, ...Object.values(settingGroups))

export type Settings = typeof settings
export type SettingName = keyof Settings
export type SecretName = {
  [Name in SettingName]: Settings[Name] extends { readonly isSecret: true } ? Name : never
}[SettingName]
