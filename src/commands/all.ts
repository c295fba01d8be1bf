import type { Command } from './command.ts'

/** A command and where the help lists it. Each is loaded when it runs: together they import most of the service. */
type Entry = {
  readonly heading: string
  /** What to type after `penny`. The name in this table works too. */
  readonly path: string
  readonly summary: string
  load(): Promise<Command>
}

export const commands: Readonly<Record<string, Entry>> = {
  chat: {
    heading: 'Use',
    path: 'chat',
    summary: 'send a message, stream the answer and show its cost',
    load: async () => (await import('./chat.ts')).chatCommand,
  },
  quote: {
    heading: 'Use',
    path: 'quote',
    summary: 'show the maximum cost of a request without sending it',
    load: async () => (await import('./quote.ts')).quoteCommand,
  },
  login: {
    heading: 'Use',
    path: 'login',
    summary: 'connect to a service as a customer',
    load: async () => (await import('./login.ts')).loginCommand,
  },
  logout: {
    heading: 'Use',
    path: 'logout',
    summary: 'remove the saved service and key of penny login',
    load: async () => (await import('./login.ts')).logoutCommand,
  },
  status: {
    heading: 'Look',
    path: 'status',
    summary: 'show the balance, today’s requests and open problems',
    load: async () => (await import('./status.ts')).statusCommand,
  },
  open: {
    heading: 'Look',
    path: 'open',
    summary: 'open a request or a page in the dashboard',
    load: async () => (await import('./open.ts')).openCommand,
  },
  balance: {
    heading: 'Look',
    path: 'balance',
    summary: 'show the balance of an account',
    load: async () => (await import('./balance.ts')).balanceCommand,
  },
  logs: {
    heading: 'Look',
    path: 'requests tail',
    summary: 'show requests as they end',
    load: async () => (await import('./logs.ts')).logsCommand,
  },
  requests: {
    heading: 'Look',
    path: 'requests get',
    summary: 'show one request and explain its charge',
    load: async () => (await import('./requests.ts')).requestsCommand,
  },
  usage: {
    heading: 'Look',
    path: 'usage',
    summary: 'show charges by day, model, key or account',
    load: async () => (await import('./usage.ts')).usageCommand,
  },
  statement: {
    heading: 'Look',
    path: 'usage statement',
    summary: 'show the monthly statement of an account',
    load: async () => (await import('./statement.ts')).statementCommand,
  },
  receipt: {
    heading: 'Look',
    path: 'receipts get',
    summary: 'print the receipt of a request, for penny verify',
    load: async () => (await import('./receipt.ts')).receiptCommand,
  },
  receipts: {
    heading: 'Look',
    path: 'receipts export',
    summary: 'export all receipts of an account to one file',
    load: async () => (await import('./export-receipts.ts')).receiptsCommand,
  },
  verify: {
    heading: 'Look',
    path: 'receipts verify',
    summary: 'verify a receipt, or all receipts of an account, offline',
    load: async () => (await import('./verify.ts')).verifyCommand,
  },
  deposit: {
    heading: 'Money',
    path: 'deposit',
    summary: 'show the deposit address and the latest deposits',
    load: async () => (await import('./deposit.ts')).depositCommand,
  },
  withdraw: {
    heading: 'Money',
    path: 'withdraw',
    summary: 'withdraw USDC to the owner address of an account',
    load: async () => (await import('./withdraw.ts')).withdrawCommand,
  },
  keys: {
    heading: 'Manage',
    path: 'keys',
    summary: 'create, list, change and revoke API keys',
    load: async () => (await import('./keys.ts')).keysCommand,
  },
  webhooks: {
    heading: 'Manage',
    path: 'webhooks',
    summary: 'send events of an account to your server, or watch them here',
    load: async () => (await import('./webhooks.ts')).webhooksCommand,
  },
  start: {
    heading: 'Run',
    path: 'start',
    summary: 'start the service and everything it needs',
    load: async () => (await import('./start.ts')).startCommand,
  },
  doctor: {
    heading: 'Run',
    path: 'doctor',
    summary: 'check the setup and explain how to fix problems',
    load: async () => (await import('./doctor.ts')).doctorCommand,
  },
  config: {
    heading: 'Run',
    path: 'config',
    summary: 'show every setting, its value and its source',
    load: async () => (await import('./config.ts')).configCommand,
  },
  providers: {
    heading: 'Run',
    path: 'providers',
    summary: 'show the health of providers, or reload their file',
    load: async () => (await import('./providers.ts')).providersCommand,
  },
  accounts: {
    heading: 'Accounts',
    path: 'accounts',
    summary: 'list, create, suspend and refund accounts',
    load: async () => (await import('./accounts.ts')).accountsCommand,
  },
  'login-link': {
    heading: 'Accounts',
    path: 'accounts link',
    summary: 'print a link that signs in to an account once',
    load: async () => (await import('./login-link.ts')).loginLinkCommand,
  },
  audit: {
    heading: 'Ledger',
    path: 'ledger audit',
    summary: 'check every invariant of the ledger on every account',
    load: async () => (await import('./audit.ts')).auditCommand,
  },
  settle: {
    heading: 'Ledger',
    path: 'ledger settle',
    summary: 'show the state of on-chain payments',
    load: async () => (await import('./settle.ts')).settleCommand,
  },
  payout: {
    heading: 'Ledger',
    path: 'ledger payout',
    summary: 'withdraw the operator’s revenue from the gateway',
    load: async () => (await import('./payout.ts')).payoutCommand,
  },
  liabilities: {
    heading: 'Ledger',
    path: 'ledger liabilities',
    summary: 'show or take snapshots of what is owed to all accounts',
    load: async () => (await import('./liabilities.ts')).liabilitiesCommand,
  },
  recover: {
    heading: 'Ledger',
    path: 'ledger recover',
    summary: 'update a restored database to the state of the chain',
    load: async () => (await import('./recover.ts')).recoverCommand,
  },
  archive: {
    heading: 'Ledger',
    path: 'ledger archive',
    summary: 'seal, export, verify and delete the requests of past months',
    load: async () => (await import('./archive.ts')).archiveCommand,
  },
  backup: {
    heading: 'Data',
    path: 'db backup',
    summary: 'copy the data folder while the service runs',
    load: async () => (await import('./backup.ts')).backupCommand,
  },
  migrate: {
    heading: 'Data',
    path: 'db migrate',
    summary: 'apply pending database migrations',
    load: async () => (await import('./migrate.ts')).migrateCommand,
  },
  'copy-database': {
    heading: 'Data',
    path: 'db copy',
    summary: 'move from the embedded PostgreSQL to another server',
    load: async () => (await import('./copy-database.ts')).copyDatabaseCommand,
  },
  sandbox: {
    heading: 'Sandbox',
    path: 'sandbox',
    summary: 'send example traffic, make the model fail',
    load: async () => (await import('./sandbox.ts')).sandboxCommand,
  },
  faucet: {
    heading: 'Sandbox',
    path: 'sandbox faucet',
    summary: 'send test USDC to an account on the sandbox chain',
    load: async () => (await import('./faucet.ts')).faucetCommand,
  },
  x402: {
    heading: 'Sandbox',
    path: 'sandbox x402',
    summary: 'pay without an account: fund a wallet in the sandbox',
    load: async () => (await import('./x402.ts')).x402Command,
  },
  gateway: {
    heading: 'Sandbox',
    path: 'sandbox gateway',
    summary: 'run a settlement gateway without a third party',
    load: async () => (await import('./gateway.ts')).gatewayCommand,
  },
}

/** Verbs that are options of a command. */
export const shortcuts: Readonly<Record<string, readonly string[]>> = {
  'requests list': ['logs', 'tail', '--once'],
  'requests tail': ['logs', 'tail'],
  'requests explain': ['requests', 'get', '--explain'],
}

/** The command that was typed, by its path or its name, and the words after it. Undefined: there is none. */
export function findCommand(
  argv: readonly string[],
): { readonly name: string; readonly rest: readonly string[] } | undefined {
  const [first = '', second = ''] = argv
  const shortcut = shortcuts[`${first} ${second}`]
  if (shortcut !== undefined) return { name: shortcut[0]!, rest: [...shortcut.slice(1), ...argv.slice(2)] }
  const nested = Object.entries(commands).find(([name, { path }]) => path === `${first} ${second}` && name !== first)
  if (nested !== undefined) return { name: nested[0], rest: argv.slice(2) }
  return Object.hasOwn(commands, first) ? { name: first, rest: argv.slice(1) } : undefined
}

/** The commands below a word that is none itself, such as `ledger`. */
export function commandsBelow(word: string): readonly Entry[] {
  return Object.hasOwn(commands, word) ? [] : Object.values(commands).filter(({ path }) => path.startsWith(`${word} `))
}

/** All commands, for the documentation. */
export async function loadCommands(): Promise<Readonly<Record<string, Command & Pick<Entry, 'path' | 'summary'>>>> {
  const loaded = await Promise.all(
    Object.entries(commands).map(
      async ([name, { path, summary, load }]) => [name, { ...(await load()), path, summary }] as const,
    ),
  )
  return Object.fromEntries(loaded)
}
