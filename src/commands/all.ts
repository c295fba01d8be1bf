import type { Command } from './command.ts'

/** Every command by name, in the order of the help. Each is loaded when it runs: together they import most of the service. */
export const commands: Readonly<Record<string, { readonly summary: string; load(): Promise<Command> }>> = {
  start: {
    summary: 'start the service and everything it needs',
    load: async () => (await import('./start.ts')).startCommand,
  },
  doctor: {
    summary: 'check the setup and explain how to fix problems',
    load: async () => (await import('./doctor.ts')).doctorCommand,
  },
  config: {
    summary: 'show every setting, its value and its source',
    load: async () => (await import('./config.ts')).configCommand,
  },
  providers: {
    summary: 'show the health of providers, or reload their file',
    load: async () => (await import('./providers.ts')).providersCommand,
  },
  accounts: {
    summary: 'list, create, suspend and refund accounts',
    load: async () => (await import('./accounts.ts')).accountsCommand,
  },
  keys: {
    summary: 'create, list, change and revoke API keys',
    load: async () => (await import('./keys.ts')).keysCommand,
  },
  webhooks: {
    summary: 'send events of an account to your server, or watch them here',
    load: async () => (await import('./webhooks.ts')).webhooksCommand,
  },
  login: {
    summary: 'connect to a service as a customer',
    load: async () => (await import('./login.ts')).loginCommand,
  },
  logout: {
    summary: 'remove the saved service and key of penny login',
    load: async () => (await import('./login.ts')).logoutCommand,
  },
  'login-link': {
    summary: 'print a link that signs in to an account once',
    load: async () => (await import('./login-link.ts')).loginLinkCommand,
  },
  balance: {
    summary: 'show the balance of an account',
    load: async () => (await import('./balance.ts')).balanceCommand,
  },
  deposit: {
    summary: 'show the deposit address and the latest deposits',
    load: async () => (await import('./deposit.ts')).depositCommand,
  },
  faucet: {
    summary: 'send test USDC to an account on the sandbox chain',
    load: async () => (await import('./faucet.ts')).faucetCommand,
  },
  x402: {
    summary: 'pay without an account: fund a wallet in the sandbox',
    load: async () => (await import('./x402.ts')).x402Command,
  },
  withdraw: {
    summary: 'withdraw USDC to the owner address of an account',
    load: async () => (await import('./withdraw.ts')).withdrawCommand,
  },
  quote: {
    summary: 'show the maximum cost of a request without sending it',
    load: async () => (await import('./quote.ts')).quoteCommand,
  },
  chat: {
    summary: 'send a message, stream the answer and show its cost',
    load: async () => (await import('./chat.ts')).chatCommand,
  },
  requests: {
    summary: 'show one request and explain its charge',
    load: async () => (await import('./requests.ts')).requestsCommand,
  },
  logs: {
    summary: 'show requests as they end',
    load: async () => (await import('./logs.ts')).logsCommand,
  },
  usage: {
    summary: 'show usage and charges by day, model, key or account',
    load: async () => (await import('./usage.ts')).usageCommand,
  },
  statement: {
    summary: 'show the monthly statement of an account',
    load: async () => (await import('./statement.ts')).statementCommand,
  },
  receipt: {
    summary: 'print the receipt of a request, for penny verify',
    load: async () => (await import('./receipt.ts')).receiptCommand,
  },
  receipts: {
    summary: 'export all receipts of an account to one file',
    load: async () => (await import('./export-receipts.ts')).receiptsCommand,
  },
  verify: {
    summary: 'verify a receipt, or all receipts of an account, offline',
    load: async () => (await import('./verify.ts')).verifyCommand,
  },
  settle: {
    summary: 'show the state of on-chain payments',
    load: async () => (await import('./settle.ts')).settleCommand,
  },
  payout: {
    summary: 'withdraw the operator’s revenue from the gateway',
    load: async () => (await import('./payout.ts')).payoutCommand,
  },
  audit: {
    summary: 'check every invariant of the ledger on every account',
    load: async () => (await import('./audit.ts')).auditCommand,
  },
  backup: {
    summary: 'copy the data folder while the service runs',
    load: async () => (await import('./backup.ts')).backupCommand,
  },
  'copy-database': {
    summary: 'move from the embedded PostgreSQL to another server',
    load: async () => (await import('./copy-database.ts')).copyDatabaseCommand,
  },
  archive: {
    summary: 'seal, export, verify and delete the requests of past months',
    load: async () => (await import('./archive.ts')).archiveCommand,
  },
  recover: {
    summary: 'update a restored database to the state of the chain',
    load: async () => (await import('./recover.ts')).recoverCommand,
  },
  migrate: {
    summary: 'apply pending database migrations',
    load: async () => (await import('./migrate.ts')).migrateCommand,
  },
  gateway: {
    summary: 'run a settlement gateway without a third party',
    load: async () => (await import('./gateway.ts')).gatewayCommand,
  },
  sandbox: {
    summary: 'fill the sandbox with example traffic, or make its model fail',
    load: async () => (await import('./sandbox.ts')).sandboxCommand,
  },
}

/** All commands, for the documentation. */
export async function loadCommands(): Promise<Readonly<Record<string, Command & { readonly summary: string }>>> {
  const loaded = await Promise.all(
    Object.entries(commands).map(async ([name, { summary, load }]) => [name, { ...(await load()), summary }] as const),
  )
  return Object.fromEntries(loaded)
}
