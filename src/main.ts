import { parseArgs } from 'node:util'
import { commands, commandsBelow, findCommand, shortcuts } from './commands/all.ts'
import { type Command, CommandError, commonOptions, type Output } from './commands/command.ts'
import { helpText } from './commands/help.ts'
import { type Config, readConfig } from './config/config.ts'
import { InvalidConfigError } from './config/setting.ts'
import { OperatorError, ServiceError } from './errors.ts'
import { packageVersion } from './process/package-version.ts'

/** Runs one command. Exit codes: 0 success, 1 failure, 2 wrong arguments. */
async function main(argv: readonly string[]): Promise<number> {
  const [name] = argv
  if (name === '--version' || name === '-v' || name === 'version') {
    process.stdout.write(`penny ${packageVersion}\n`)
    return 0
  }
  const typed = findCommand(argv)
  if (typed === undefined) {
    const asked = name === undefined || name === '--help' || name === '-h' || name === 'help'
    const below = asked ? [] : commandsBelow(name)
    if (!asked && below.length === 0)
      throw new CommandError(`Unknown command "${name}". penny --help lists all commands.`, 2)
    if (below.length > 0 && argv[1]?.startsWith('-') === false) {
      const known = below.map(({ path }) => path).join(', ')
      throw new CommandError(`Unknown command "${name} ${argv[1]}". There are: ${known}.`, 2)
    }
    process.stdout.write(below.length === 0 ? describeCommands() : listOf(below))
    return 0
  }
  const found = commands[typed.name]!
  const command = await found.load()
  const options = { ...commonOptions, ...(command.optionsOf?.(typed.rest[0]) ?? command.options) }
  const { values, positionals } = readArguments(typed.name, options, joinNegatives(options, typed.rest))
  if (values.help === true) {
    process.stdout.write(helpText(found.summary, command.usageOf?.(positionals[0]) ?? command.usage))
    return 0
  }
  const unread = positionals[command.wordsMax ?? 0]
  if (unread !== undefined)
    throw new CommandError(`Unexpected argument "${unread}". See penny ${typed.name} --help.`, 2)
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

function readArguments(name: string, options: Command['options'], args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true })
  } catch (error) {
    throw new CommandError(`${describeWrongOption(error as NodeJS.ErrnoException)} See penny ${name} --help.`, 2)
  }
}

/** The first sentence of Node's message: the rest explains positional arguments. */
function describeWrongOption({ code, message }: NodeJS.ErrnoException): string {
  const [, valueless] = /^Option '(?:-\w, )?(--[^ ']+) <value>' argument missing/.exec(message) ?? []
  if (valueless !== undefined) return `${valueless} needs a value.`
  const [, option] = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? (/'--?([^']+)'/.exec(message) ?? []) : []
  if (option === undefined) return `${message.split(/\.\s/)[0]!.replace(/\.$/, '')}.`
  return `Unknown option --${option}.`
}

/** In `--limit -1` the last word is a value, not an option. The command itself reports what is wrong with it. */
function joinNegatives(options: Command['options'], args: readonly string[]): string[] {
  const joined: string[] = []
  for (const argument of args) {
    const option = options[joined.at(-1)?.replace(/^--/, '') ?? '']
    if (/^-\d/.test(argument) && option?.type === 'string') joined.push(`${joined.pop()}=${argument}`)
    else joined.push(argument)
  }
  return joined
}

function createOutput(json: boolean, noColor: boolean): Output {
  return {
    json,
    color: process.stdout.isTTY === true && !noColor,
    width: process.stdout.isTTY === true ? process.stdout.columns : undefined,
    write: (text) => process.stdout.write(text),
  }
}

function describeCommands(): string {
  // One line per word, with the verbs below it.
  const words = new Map<string, { readonly heading: string; readonly parts: readonly string[] }>()
  for (const { heading, path, summary } of Object.values(commands)) {
    const [word = '', verb] = path.split(' ')
    const more = Object.keys(shortcuts).flatMap((typed) =>
      typed.startsWith(`${word} `) ? typed.slice(word.length + 1) : [],
    )
    words.set(word, { heading, parts: [...new Set([...(words.get(word)?.parts ?? more), verb ?? summary])] })
  }
  const lines = [...Map.groupBy(words, ([, { heading }]) => heading)].map(([heading, below]) =>
    [heading, ...below.map(([word, { parts }]) => `  ${word.padEnd(11)} ${parts.join(', ')}`)].join('\n').trimStart(),
  )
  return `Penny Router: OpenAI-compatible inference, paid per request in USDC.\n\n${lines.join('\n')}\n\nEvery command has --help and --json.\nSettings are environment variables: see docs/settings.md or penny config.\nIn a clone, run the command as: npx penny …\n`
}

function listOf(below: ReturnType<typeof commandsBelow>): string {
  return below.map(({ path, summary }) => `  penny ${path.padEnd(16)} ${summary}\n`).join('')
}

// The reader of a pipe may exit early, as `head` does.
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
// Nothing is left to do: from here on a signal may kill this process (bin/runtime.mjs).
if (process.connected) process.send?.({ exitCode: process.exitCode }, undefined, {}, () => {})
