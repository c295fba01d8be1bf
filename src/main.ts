import { parseArgs } from 'node:util'
import { type Command, CommandError, type Output } from './commands/command.ts'
import { readConfig } from './config.ts'
import { StartRefusal } from './errors.ts'

// Loaded when it is called: a node that serves has no use for the code that verifies receipts.
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./commands/start.ts')).startCommand,
  keys: async () => (await import('./commands/keys.ts')).keysCommand,
  accounts: async () => (await import('./commands/accounts.ts')).accountsCommand,
  deposit: async () => (await import('./commands/deposit.ts')).depositCommand,
  faucet: async () => (await import('./commands/faucet.ts')).faucetCommand,
  withdraw: async () => (await import('./commands/withdraw.ts')).withdrawCommand,
  settle: async () => (await import('./commands/settle.ts')).settleCommand,
  payout: async () => (await import('./commands/payout.ts')).payoutCommand,
  receipt: async () => (await import('./commands/receipt.ts')).receiptCommand,
  verify: async () => (await import('./commands/verify.ts')).verifyCommand,
  audit: async () => (await import('./commands/audit.ts')).auditCommand,
  'login-link': async () => (await import('./commands/login-link.ts')).loginLinkCommand,
  gateway: async () => (await import('./commands/gateway.ts')).gatewayCommand,
}

const commonOptions = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

/** Runs one command. Exit codes: 0 done, 1 it failed, 2 it was called wrongly. */
async function main(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv
  const command = name === undefined ? undefined : await commands[name]?.()
  if (command === undefined) {
    const asked = name === undefined || name === '--help' || name === '-h' || name === 'help'
    const known = await help()
    process[asked ? 'stdout' : 'stderr'].write(asked ? known : `penny: there is no command "${name}".\n\n${known}`)
    return asked ? 0 : 2
  }
  const { values, positionals } = readArguments(command, rest)
  if (values.help === true) {
    process.stdout.write(`${command.summary}\n\n  ${command.usage}\n`)
    return 0
  }
  const config = readConfig(undefined, command.reader)
  return command.run({
    words: positionals,
    options: values,
    config,
    output: createOutput(values.json === true, config.noColor),
  })
}

function readArguments(command: Command, args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: { ...commonOptions, ...command.options }, allowPositionals: true })
  } catch (error) {
    throw new CommandError(`${(error as Error).message}\n\n  ${command.usage}`, 2)
  }
}

function createOutput(json: boolean, noColor: boolean): Output {
  return {
    json,
    color: process.stdout.isTTY === true && !noColor,
    write: (text) => process.stdout.write(text),
  }
}

async function help(): Promise<string> {
  const loaded = Object.entries(commands).map(async ([name, load]) => ({ name, summary: (await load()).summary }))
  const lines = (await Promise.all(loaded)).map(({ name, summary }) => `  penny ${name.padEnd(10)} ${summary}`)
  return `Penny Router: OpenAI-compatible inference, paid per request in USDC.\n\n${lines.join('\n')}\n\nEvery command has --help and --json. Configuration is by environment: see README.md.\n`
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  if (error instanceof CommandError || error instanceof StartRefusal) process.stderr.write(`penny: ${error.message}\n`)
  else process.stderr.write(`penny: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  process.exitCode = error instanceof CommandError ? error.exitCode : 1
}
