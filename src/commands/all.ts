import type { Command } from './command.ts'

/** Every command by name, in the order of the help. Each is loaded when it runs. */
export const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./start.ts')).startCommand,
  doctor: async () => (await import('./doctor.ts')).doctorCommand,
  config: async () => (await import('./config.ts')).configCommand,
  providers: async () => (await import('./providers.ts')).providersCommand,
  accounts: async () => (await import('./accounts.ts')).accountsCommand,
  keys: async () => (await import('./keys.ts')).keysCommand,
  webhooks: async () => (await import('./webhooks.ts')).webhooksCommand,
  login: async () => (await import('./login.ts')).loginCommand,
  logout: async () => (await import('./login.ts')).logoutCommand,
  'login-link': async () => (await import('./login-link.ts')).loginLinkCommand,
  balance: async () => (await import('./balance.ts')).balanceCommand,
  deposit: async () => (await import('./deposit.ts')).depositCommand,
  faucet: async () => (await import('./faucet.ts')).faucetCommand,
  x402: async () => (await import('./x402.ts')).x402Command,
  withdraw: async () => (await import('./withdraw.ts')).withdrawCommand,
  quote: async () => (await import('./quote.ts')).quoteCommand,
  chat: async () => (await import('./chat.ts')).chatCommand,
  requests: async () => (await import('./requests.ts')).requestsCommand,
  logs: async () => (await import('./logs.ts')).logsCommand,
  usage: async () => (await import('./usage.ts')).usageCommand,
  statement: async () => (await import('./statement.ts')).statementCommand,
  receipt: async () => (await import('./receipt.ts')).receiptCommand,
  receipts: async () => (await import('./export-receipts.ts')).receiptsCommand,
  verify: async () => (await import('./verify.ts')).verifyCommand,
  settle: async () => (await import('./settle.ts')).settleCommand,
  payout: async () => (await import('./payout.ts')).payoutCommand,
  audit: async () => (await import('./audit.ts')).auditCommand,
  backup: async () => (await import('./backup.ts')).backupCommand,
  'copy-database': async () => (await import('./copy-database.ts')).copyDatabaseCommand,
  archive: async () => (await import('./archive.ts')).archiveCommand,
  recover: async () => (await import('./recover.ts')).recoverCommand,
  migrate: async () => (await import('./migrate.ts')).migrateCommand,
  gateway: async () => (await import('./gateway.ts')).gatewayCommand,
  sandbox: async () => (await import('./sandbox.ts')).sandboxCommand,
  completion: async () => (await import('./completion.ts')).completionCommand,
}

/** All commands, for help, completions and the documentation. */
export async function loadCommands(): Promise<Readonly<Record<string, Command>>> {
  const loaded = await Promise.all(Object.entries(commands).map(async ([name, load]) => [name, await load()] as const))
  return Object.fromEntries(loaded)
}
