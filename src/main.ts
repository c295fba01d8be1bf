import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { commands, loadCommands } from './commands/all.ts'
import { type Command, CommandError, commonOptions, type Output } from './commands/command.ts'
import { didYouMean } from './commands/did-you-mean.ts'
import { type Config, readConfig } from './config.ts'
import { OperatorError, ServiceError } from './errors.ts'
import { InvalidConfigError } from './setting-reader.ts'

/** Runs one command. Exit codes: 0 done, 1 it failed, 2 it was called wrongly. */
async function main(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv
  if (name === '--version' || name === '-v' || name === 'version') {
    process.stdout.write(`penny ${version()}\n`)
    return 0
  }
  const command = name !== undefined && Object.hasOwn(commands, name) ? await commands[name]!() : undefined
  if (command === undefined) {
    const asked = name === undefined || name === '--help' || name === '-h' || name === 'help'
    if (!asked) throw new CommandError(describeUnknown(name), 2)
    process.stdout.write(await describeCommands())
    return 0
  }
  const { values, positionals } = readArguments(command, joinNegatives(command, rest))
  if (values.help === true) {
    process.stdout.write(`${command.summary}\n\n  ${command.usage}\n`)
    return 0
  }
  refuseUnreadWords(name!, command, positionals)
  const json = values.json === true
  let config: Config
  try {
    config = readConfig(undefined, command.reader)
  } catch (error) {
    if (error instanceof InvalidConfigError && command.withoutConfig !== undefined)
      return command.withoutConfig(error, createOutput(json, true))
    throw error
  }
  return command.run({ words: positionals, options: values, config, output: createOutput(json, config.noColor) })
}

function readArguments(command: Command, args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: { ...commonOptions, ...command.options }, allowPositionals: true })
  } catch (error) {
    throw new CommandError(`${(error as Error).message}\n\n  ${command.usage}`, 2)
  }
}

/** `--limit -1` is a value, not an option: the command itself says what is wrong with it. */
function joinNegatives({ options }: Command, args: readonly string[]): string[] {
  const joined: string[] = []
  for (const argument of args) {
    const option = options[joined.at(-1)?.replace(/^--/, '') ?? '']
    if (/^-\d/.test(argument) && option?.type === 'string') joined.push(`${joined.pop()}=${argument}`)
    else joined.push(argument)
  }
  return joined
}

function describeUnknown(name: string): string {
  const near = didYouMean(name, Object.keys(commands))
  const guess = near === undefined ? '' : ` Did you mean "penny ${near}"?`
  return `there is no command "${name}".${guess} penny --help lists all commands.`
}

function version(): string {
  return (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }).version
}

function refuseUnreadWords(name: string, { wordsMax = 0, usage }: Command, words: readonly string[]): void {
  const unread = words[wordsMax]
  if (unread === undefined) return
  throw new CommandError(`penny ${name} does not know what to do with "${unread}".\n\n  ${usage}`, 2)
}

function createOutput(json: boolean, noColor: boolean): Output {
  return {
    json,
    color: process.stdout.isTTY === true && !noColor,
    width: process.stdout.isTTY === true ? process.stdout.columns : undefined,
    write: (text) => process.stdout.write(text),
  }
}

async function describeCommands(): Promise<string> {
  const lines = Object.entries(await loadCommands()).map(
    ([name, command]) => `  penny ${name.padEnd(10)} ${command.summary}`,
  )
  return `Penny Router: OpenAI-compatible inference, paid per request in USDC.\n\n${lines.join('\n')}\n\nEvery command has --help and --json. Settings are environment variables: see README.md or penny config.\nIn a clone, run the command as: npx penny …\n`
}

// The reader of a pipe may leave early, as head does: then there is nobody to write to.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exitCode = 0
})

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const isExpected = [CommandError, ServiceError, OperatorError].some((kind) => error instanceof kind)
  if (isExpected) process.stderr.write(`penny: ${(error as Error).message}\n`)
  else process.stderr.write(`penny: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  process.exitCode = error instanceof CommandError ? error.exitCode : 1
}
