import { parseArgs } from 'node:util'
import { type Command, CommandError, commonOptions } from '../../src/commands/command.ts'
import { readConfig } from '../../src/config/config.ts'

/** Runs a command in this process. Starting `penny` instead takes up to half a second of a core. */
export async function runCommand(
  command: Command,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<{ readonly code: number; readonly text: string }> {
  const options = { ...commonOptions, ...command.options }
  const { values, positionals: words } = parseArgs({ args: [...args], options, allowPositionals: true })
  let text = ''
  const write = (piece: string) => {
    text += piece
  }
  const output = { json: values.json === true, color: false, width: undefined, write }
  try {
    const config = readConfig(environment, command.reader)
    return { code: await command.run({ words, options: values, config, output }), text }
  } catch (error) {
    // As `main.ts` reports it; anything else is a fault.
    if (!(error instanceof CommandError)) throw error
    return { code: error.exitCode, text: `${text}penny: ${error.message}\n` }
  }
}
