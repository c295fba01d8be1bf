/** An environment variable, as the reference documents it. */
type Setting = {
  /** What it does, in one or two sentences of Markdown. */
  readonly about: string
  /** The default, in Markdown. */
  readonly unset: string
  /** The secret may be in a file instead, named by the variable with the suffix `_FILE`. Its value is never shown. */
  readonly isSecret?: true
}

/**
 * Every setting, by subject. `config.ts` reads them and checks their bounds; a name that is not listed here does not compile there.
 * `docs/settings.md` is generated from this list, and `penny config NAME` prints a row of it.
 */
export const settingGroups = {
  'Web server': {
    PORT: { about: 'Port of the service. 0 picks a free one.', unset: '8402' },
    HOST: { about: 'Address that the service listens on.', unset: '127.0.0.1' },
    PUBLIC_URL: {
      about: 'The URL that people use. It must be https unless it points to this machine.',
      unset: '`http://localhost:PORT`',
    },
    TRUST_PROXY: {
      about: '1: the service is behind a proxy, and the client’s address is the last one in `x-forwarded-for`.',
      unset: '0',
    },
    OPERATORS: {
      about:
        'Account ids or sign-in wallet addresses, separated by commas, that may see the operator’s pages at `/operator`.',
      unset: 'None; in the sandbox, the local developer',
    },
    WEB_PROCESSES: {
      about:
        'Processes that serve requests on the same port, on Linux. Each opens up to 23 connections to PostgreSQL. See [Scaling out](guides/scaling-out.md).',
      unset: 'One for every two cores, at most 8',
    },
    REQUESTS_MAX: { about: 'Maximum number of concurrent requests, for each web process.', unset: '10000' },
    BODY_BYTES_MAX: { about: 'Size limit of one request body.', unset: '4194304' },
    BODIES_BYTES_MAX: {
      about: 'Size limit of all request bodies that are being read, for each web process.',
      unset: '268435456',
    },
    KEEPALIVE_AFTER_MS: {
      about: 'A buffered answer that takes longer gets its headers now, and white space to keep the connection open.',
      unset: '45000',
    },
    STREAM_KEEPALIVE_MS: { about: 'A stream that is silent for this long gets a comment line.', unset: '15000' },
    BLOCKED_MS_MAX: { about: 'A client that reads nothing for this long is disconnected.', unset: '30000' },
    SHUTDOWN_DELAY_MS: {
      about:
        'For this long, a stopping service answers 503 at `/readyz` and keeps serving, so that load balancers stop sending requests before the port closes.',
      unset: '`0`, and 5000 with `NODE_ENV=production`',
    },
    DRAIN_MS: { about: 'How long a stopping service waits for running requests.', unset: '30000' },
  },
  'Data and processes': {
    NODE_ENV: {
      about:
        '`production` refuses the embedded database, chain and model unless the service is started with `--allow-embedded`.',
      unset: 'Embedded services are allowed',
    },
    DATA_DIR: {
      about: 'Folder for the database, keys and logs of the service.',
      unset: '`.penny` in the working folder',
    },
    DATABASE_URL: {
      about:
        'A PostgreSQL server of version 15 to 18, or several of which one accepts writes: `postgresql://user@host1:5432,host2:5432/name`. See [Failover of PostgreSQL](guides/failover.md).',
      unset: 'An embedded PostgreSQL in `DATA_DIR`',
      isSecret: true,
    },
    NOTIFY_SOCKET: {
      about: 'Set by systemd for units of `Type=notify`. The service reports there when it is ready and when it stops.',
      unset: 'Nothing is reported',
    },
    LEDGER_PARTITIONS: {
      about: 'Partitions of the ledger. Set it before the first account exists. See [Scaling](scaling.md).',
      unset: '1',
    },
    ROLES: {
      about:
        'What this machine does: `web` (serves requests) or `web,jobs` (also signs, settles, audits all accounts and sends webhooks and alerts). See [Going to production](guides/production.md).',
      unset: '`web,jobs`',
    },
    CHILD_START_MS: {
      about:
        'How long the signer, settlement, the gateway and the sandbox may each take to start. Raise it on a slow machine.',
      unset: '120000',
    },
    LEASE_MS: { about: 'How long a node that sends no heartbeat counts as alive.', unset: '15000' },
    CHECKPOINT_MS: { about: 'How often the progress of open streams is saved.', unset: '2000' },
    AUDIT_MS: { about: 'How often the accounts in use are audited.', unset: '60000' },
    FULL_AUDIT_MS: { about: 'How often all accounts are audited.', unset: '3600000' },
    REPLAY_HOURS: { about: 'How long answers are kept for clients that retry.', unset: '24' },
    REFUSED_DAYS: { about: 'How long refused requests stay in the log.', unset: '90' },
  },
  'Models and search': {
    UPSTREAM_BASE_URL: {
      about: 'A server with the Responses API or the chat completions API.',
      unset: 'The sandbox model',
    },
    UPSTREAM_PROTOCOL: {
      about:
        'API of that server: `responses`, or `chat-completions` (vLLM, Ollama, LM Studio, llama.cpp, Mistral, DeepSeek, OpenRouter, another Penny Router).',
      unset: '`responses`',
    },
    UPSTREAM_API_KEY: { about: 'Key for that server.', unset: 'None is sent', isSecret: true },
    PROVIDERS_FILE: {
      about:
        'JSON file with several providers, and the models that each of them serves. See [Providers](guides/providers.md). Not together with `UPSTREAM_BASE_URL`.',
      unset: 'One provider, from `UPSTREAM_BASE_URL`',
    },
    MODELS_FILE: {
      about:
        'JSON array of models: `{id, upstream_model, input_per_million, output_per_million, context_length, max_output_tokens, default, aliases}`.',
      unset: 'The five models of the service',
    },
    UPSTREAM_CONNECT_MS: { about: 'Timeout for the connection to the upstream.', unset: '5000' },
    UPSTREAM_FIRST_BYTE_MS: { about: 'Timeout for its first byte.', unset: '300000' },
    UPSTREAM_IDLE_MS: { about: 'Timeout between two bytes.', unset: '300000' },
    UPSTREAM_TOTAL_MS: { about: 'Timeout for the whole answer.', unset: '1200000' },
    SEARCH_PROVIDER: {
      about:
        'One or more of `exa`, `brave`, `tavily`, `searxng`, separated by commas and tried in this order; `none` switches web search off. Each needs its own credential below.',
      unset: 'The sandbox search, over this documentation',
    },
    EXA_API_KEY: { about: 'Key for Exa.', unset: 'Not used', isSecret: true },
    BRAVE_API_KEY: { about: 'Key for Brave Search.', unset: 'Not used', isSecret: true },
    TAVILY_API_KEY: { about: 'Key for Tavily.', unset: 'Not used', isSecret: true },
    SEARXNG_URL: { about: 'URL of a SearXNG server.', unset: 'Not used' },
    SANDBOX_PROVIDERS: {
      about: 'Providers of the sandbox model: 2 adds a backup that speaks chat completions, to try failover.',
      unset: '1',
    },
    SANDBOX_TOKENS_PER_SECOND: { about: 'Speed of the sandbox model. 0 is as fast as possible.', unset: '60' },
  },
  Money: {
    IN_FLIGHT_CAP_USDC: { about: 'Maximum amount that the open requests of one account can hold.', unset: '1.00' },
    UNSETTLED_CAP_USDC: {
      about: 'Maximum charges of one account that are not yet paid on chain.',
      unset: '5',
    },
    SETTLE_AFTER_MS: {
      about: 'Charges of an account are paid on chain when the oldest is this old and they reach `SETTLE_MIN_USDC`.',
      unset: '60000; in the sandbox 1000',
    },
    SETTLE_MIN_USDC: { about: 'See `SETTLE_AFTER_MS`.', unset: '0.05; in the sandbox 0' },
    SETTLE_LATEST_MS: {
      about: 'Charges this old are paid on chain, whatever their amount.',
      unset: '86400000; in the sandbox 5000',
    },
    SWEEP_MIN_USDC: { about: 'Smaller deposits wait until they add up to this.', unset: '0.10' },
    WITHDRAWAL_MIN_USDC: {
      about:
        'Minimum withdrawal, and minimum refund of a wallet. A smaller one is possible once in 24 hours, if it empties the account.',
      unset: '0.10',
    },
    OWNER_COOLDOWN: {
      about: 'How long a changed withdrawal address waits until it takes effect, in milliseconds.',
      unset: '86400000; in the sandbox 0',
    },
    SELLER_ADDRESS: { about: 'Address that earns the revenue.', unset: 'An address derived from the master key' },
    PAYOUT_ADDRESS: { about: 'Address that `penny payout` sends revenue to.', unset: 'No payout' },
    MASTER_KEY: {
      about:
        '32 random bytes as hex; all account keys are derived from it. Required with a real chain where `ROLES` has `jobs`, optional in the sandbox, ignored without `jobs`. [Keep it safe](runbooks/master-key.md).',
      unset: 'Generated once in `DATA_DIR`',
      isSecret: true,
    },
    DEPOSITS_FROM_BLOCK: {
      about: 'First block that is searched for deposits.',
      unset: 'The chain’s newest block at the very first start',
    },
    SETTLEMENT_EPOCH: {
      about: 'Raise it only [after a restore](runbooks/backup.md), as a last resort.',
      unset: '0',
    },
  },
  'Chain and gateway': {
    CHAIN_RPC_URL: {
      about:
        'JSON-RPC URL of a chain node. Set all of this, `GATEWAY_URL`, `USDC_ADDRESS` and `GATEWAY_WALLET_ADDRESS`, or none.',
      unset: 'The sandbox chain and gateway',
    },
    GATEWAY_URL: { about: 'The settlement gateway: Circle’s or your own.', unset: 'See `CHAIN_RPC_URL`' },
    USDC_ADDRESS: { about: 'The USDC contract.', unset: 'See `CHAIN_RPC_URL`' },
    GATEWAY_WALLET_ADDRESS: { about: 'The gateway’s wallet contract.', unset: 'See `CHAIN_RPC_URL`' },
    GATEWAY_MINTER_ADDRESS: { about: 'The contract that pays withdrawals.', unset: '`GATEWAY_WALLET_ADDRESS`' },
    GATEWAY_DOMAIN: { about: 'The gateway’s number for the chain: 26 for Arc at Circle.', unset: 'The chain’s id' },
    USDC_NAME: { about: 'Name in the USDC contract’s EIP-712 domain.', unset: '`USDC`' },
    USDC_VERSION: { about: 'Version in that domain.', unset: '`2`' },
    GATEWAY_TOKEN: {
      about:
        'Bearer token between the service and your own gateway, 32 to 512 characters. Circle’s gateway needs none.',
      unset: 'None is sent',
      isSecret: true,
    },
    GATEWAY_BATCH_MS: { about: 'How long your own gateway collects payments for one batch.', unset: '2000' },
    GATEWAY_RELAYER_KEY: {
      about: '`penny gateway` only: key of the address that pays gas.',
      unset: 'Required there',
      isSecret: true,
    },
    GATEWAY_HOST: { about: '`penny gateway` only: address that it listens on.', unset: '127.0.0.1' },
    GATEWAY_PORT: { about: '`penny gateway` only: its port.', unset: '8403' },
    GATEWAY_PAYEES: {
      about: '`penny gateway` only: addresses, separated by commas, whose payments it settles.',
      unset: '`SELLER_ADDRESS`, or the seller of the service on the same `DATA_DIR`',
    },
    GATEWAY_FIRST_BLOCK: { about: '`penny gateway` only: first block that it reads.', unset: '0' },
    GATEWAY_GAS_PRICE_MAX_GWEI: { about: '`penny gateway` only: the most it pays for gas.', unset: '2000' },
  },
  'Logs and monitoring': {
    LOG_LEVEL: {
      about:
        '`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`. Logs are JSON lines on standard error, or in `DATA_DIR/penny.log` when standard error is a terminal.',
      unset: '`info`',
    },
    NO_COLOR: { about: 'Any value switches colors off.', unset: 'Colors on a terminal' },
    SMTP_URL: {
      about:
        'Mail server for alerts, such as `smtps://user:password@mail.example.com`; `smtp://` uses STARTTLS where it is offered. See [Alerts](alerts.md).',
      unset: 'Alerts are not mailed',
      isSecret: true,
    },
    MAIL_FROM: {
      about: 'Sender of mail, such as `Penny <alerts@example.com>`.',
      unset: '`alerts@` and the host of `PUBLIC_URL`',
    },
    METRICS_TOKEN: { about: 'Bearer token for `/metrics`.', unset: 'Anyone may read `/metrics`', isSecret: true },
    OTEL_EXPORTER_OTLP_ENDPOINT: {
      about: 'Collector that traces are sent to. See [Monitoring](observability.md).',
      unset: 'No traces',
    },
    OTEL_EXPORTER_OTLP_HEADERS: { about: 'Headers for it: `name=value,name=value`.', unset: 'None', isSecret: true },
    OTEL_SERVICE_NAME: { about: 'Name of this service in traces.', unset: '`penny`' },
    XDG_CONFIG_HOME: {
      about: '`penny login` keeps `penny/login.json` in it, readable by its owner only.',
      unset: '`~/.config`',
    },
    FAILPOINT: { about: 'For fault tests: where this process dies. Refused in production.', unset: 'Nowhere' },
  },
} as const satisfies Record<string, Record<string, Setting>>

type Groups = (typeof settingGroups)[keyof typeof settingGroups]
type NamesOf<Group> = Group extends unknown ? keyof Group : never
type SecretsOf<Group> = Group extends unknown
  ? { [Name in keyof Group]: Group[Name] extends { isSecret: true } ? Name : never }[keyof Group]
  : never

export type SettingName = NamesOf<Groups>
export type SecretName = SecretsOf<Groups>

export const settings = Object.assign({}, ...Object.values(settingGroups)) as Readonly<Record<SettingName, Setting>>
