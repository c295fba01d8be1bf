import { parseArgs } from 'node:util'
import { accountsCommand } from './commands/accounts.ts'
import { auditCommand } from './commands/audit.ts'
import { type Command, CommandError, type Output } from './commands/command.ts'
import { depositCommand } from './commands/deposit.ts'
import { faucetCommand } from './commands/faucet.ts'
import { gatewayCommand } from './commands/gateway.ts'
import { keysCommand } from './commands/keys.ts'
import { loginLinkCommand } from './commands/login-link.ts'
import { payoutCommand } from './commands/payout.ts'
import { receiptCommand } from './commands/receipt.ts'
import { settleCommand } from './commands/settle.ts'
import { startCommand } from './commands/start.ts'
import { verifyCommand } from './commands/verify.ts'
import { withdrawCommand } from './commands/withdraw.ts'
import { readConfig } from './config.ts'
import { StartRefusal } from './errors.ts'

const commands: Readonly<Record<string, Command>> = {
  start: startCommand,
  keys: keysCommand,
  accounts: accountsCommand,
  deposit: depositCommand,
  faucet: faucetCommand,
  withdraw: withdrawCommand,
  settle: settleCommand,
  payout: payoutCommand,
  receipt: receiptCommand,
  verify: verifyCommand,
  audit: auditCommand,
  'login-link': loginLinkCommand,
  gateway: gatewayCommand,
}

const commonOptions = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

/** Runs one command. Exit codes: 0 done, 1 it failed, 2 it was called wrongly. */
async function main(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv
  const command = name === undefined ? undefined : commands[name]
  if (command === undefined) {
    const asked = name === undefined || name === '--help' || name === '-h' || name === 'help'
    process[asked ? 'stdout' : 'stderr'].write(asked ? help() : `penny: there is no command "${name}".\n\n${help()}`)
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

function help(): string {
  const lines = Object.entries(commands).map(([name, command]) => `  penny ${name.padEnd(10)} ${command.summary}`)
  return `Penny Router: OpenAI-compatible inference, paid per request in USDC.\n\n${lines.join('\n')}\n\nEvery command has --help and --json. Configuration is by environment: see README.md.\n`
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  if (error instanceof CommandError || error instanceof StartRefusal) process.stderr.write(`penny: ${error.message}\n`)
  else process.stderr.write(`penny: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  process.exitCode = error instanceof CommandError ? error.exitCode : 1
}
