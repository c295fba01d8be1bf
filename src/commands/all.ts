import type { Command } from './command.ts'

/** Each command is loaded when it runs: together they import most of the service. */
const loaders = {
  chat: async () => (await import('./chat.ts')).chatCommand,
  quote: async () => (await import('./quote.ts')).quoteCommand,
  login: async () => (await import('./login.ts')).loginCommand,
  logout: async () => (await import('./login.ts')).logoutCommand,
  status: async () => (await import('./status.ts')).statusCommand,
  open: async () => (await import('./open.ts')).openCommand,
  balance: async () => (await import('./balance.ts')).balanceCommand,
  logs: async () => (await import('./logs.ts')).logsCommand,
  requests: async () => (await import('./requests.ts')).requestsCommand,
  usage: async () => (await import('./usage.ts')).usageCommand,
  statement: async () => (await import('./statement.ts')).statementCommand,
  receipt: async () => (await import('./receipt.ts')).receiptCommand,
  receipts: async () => (await import('./receipts.ts')).receiptsCommand,
  verify: async () => (await import('./verify.ts')).verifyCommand,
  deposit: async () => (await import('./deposit.ts')).depositCommand,
  withdraw: async () => (await import('./withdraw.ts')).withdrawCommand,
  keys: async () => (await import('./keys.ts')).keysCommand,
  webhooks: async () => (await import('./webhooks.ts')).webhooksCommand,
  api: async () => (await import('./api.ts')).apiCommand,
  start: async () => (await import('./start.ts')).startCommand,
  doctor: async () => (await import('./doctor.ts')).doctorCommand,
  config: async () => (await import('./config.ts')).configCommand,
  providers: async () => (await import('./providers.ts')).providersCommand,
  accounts: async () => (await import('./accounts.ts')).accountsCommand,
  'login-link': async () => (await import('./login-link.ts')).loginLinkCommand,
  audit: async () => (await import('./audit.ts')).auditCommand,
  settle: async () => (await import('./settle.ts')).settleCommand,
  payout: async () => (await import('./payout.ts')).payoutCommand,
  liabilities: async () => (await import('./liabilities.ts')).liabilitiesCommand,
  recover: async () => (await import('./recover.ts')).recoverCommand,
  archive: async () => (await import('./archive.ts')).archiveCommand,
  backup: async () => (await import('./backup.ts')).backupCommand,
  migrate: async () => (await import('./migrate.ts')).migrateCommand,
  'copy-database': async () => (await import('./copy-database.ts')).copyDatabaseCommand,
  sandbox: async () => (await import('./sandbox.ts')).sandboxCommand,
  faucet: async () => (await import('./faucet.ts')).faucetCommand,
  x402: async () => (await import('./x402.ts')).x402Command,
  gateway: async () => (await import('./gateway.ts')).gatewayCommand,
} satisfies Readonly<Record<string, () => Promise<Command>>>

/** Where the help lists a command, what to type after `penny` (its name in this table works too), and what it does. */
const table: Readonly<Record<keyof typeof loaders, readonly [heading: string, path: string, summary: string]>> = {
  chat: ['Use', 'chat', 'send a message, stream the answer and show its cost'],
  quote: ['Use', 'quote', 'show the maximum cost of a request without sending it'],
  login: ['Use', 'login', 'connect to a service as a customer'],
  logout: ['Use', 'logout', 'remove the saved service and key of penny login'],
  status: ['Look', 'status', 'show the balance, today’s requests and open problems'],
  open: ['Look', 'open', 'open a request or a page in the dashboard'],
  balance: ['Look', 'balance', 'show the balance of an account'],
  logs: ['Look', 'requests tail', 'show requests as they end'],
  requests: ['Look', 'requests get', 'show one request and explain its charge'],
  usage: ['Look', 'usage', 'show charges by day, model or key'],
  statement: ['Look', 'usage statement', 'show the monthly statement of an account'],
  receipt: ['Look', 'receipts get', 'print the receipt of a request, for penny verify'],
  receipts: ['Look', 'receipts export', 'export all receipts of an account to one file'],
  verify: ['Look', 'receipts verify', 'verify a receipt, or all receipts of an account, offline'],
  deposit: ['Money', 'deposit', 'show the deposit address and the latest deposits'],
  withdraw: ['Money', 'withdraw', 'withdraw USDC to the owner address of an account'],
  keys: ['Manage', 'keys', 'create, list, change and revoke API keys'],
  webhooks: ['Manage', 'webhooks', 'send events of an account to your server, or watch them here'],
  api: ['Manage', 'api', 'call any operation of the HTTP API'],
  start: ['Run', 'start', 'start the service and everything it needs'],
  doctor: ['Run', 'doctor', 'check the setup and explain how to fix problems'],
  config: ['Run', 'config', 'show every setting, its value and its source'],
  providers: ['Run', 'providers', 'show the health of providers, or reload their file'],
  accounts: ['Accounts', 'accounts', 'list, create, suspend and refund accounts'],
  'login-link': ['Accounts', 'accounts link', 'print a link that signs in to an account once'],
  audit: ['Ledger', 'ledger audit', 'check every invariant of the ledger on every account'],
  settle: ['Ledger', 'ledger settle', 'show the state of on-chain payments'],
  payout: ['Ledger', 'ledger payout', 'withdraw the operator’s revenue from the gateway'],
  liabilities: ['Ledger', 'ledger liabilities', 'show or take snapshots of what is owed to all accounts'],
  recover: ['Ledger', 'ledger recover', 'update a restored database to the state of the chain'],
  archive: ['Ledger', 'ledger archive', 'seal, export, verify and delete the requests of past months'],
  backup: ['Data', 'db backup', 'copy the data folder while the service runs'],
  migrate: ['Data', 'db migrate', 'apply pending database migrations'],
  'copy-database': ['Data', 'db copy', 'move from the embedded PostgreSQL to another server'],
  sandbox: ['Sandbox', 'sandbox', 'send example traffic, make the model fail'],
  faucet: ['Sandbox', 'sandbox faucet', 'send test USDC to an account on the sandbox chain'],
  x402: ['Sandbox', 'sandbox x402', 'pay without an account: fund a wallet in the sandbox'],
  gateway: ['Sandbox', 'sandbox gateway', 'run a settlement gateway without a third party'],
}

type Entry = {
  readonly heading: string
  readonly path: string
  readonly summary: string
  load(): Promise<Command>
}

export const commands: Readonly<Record<string, Entry>> = Object.fromEntries(
  Object.entries(table).map(([name, [heading, path, summary]]) => [
    name,
    { heading, path, summary, load: loaders[name as keyof typeof loaders] },
  ]),
)

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
