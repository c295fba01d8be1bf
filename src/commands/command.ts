import type { Config, ConfigReader } from '../config/config.ts'

/** The input of a command: words, options and output. */
export type Invocation = {
  readonly words: readonly string[]
  readonly options: Readonly<Record<string, string | boolean | undefined>>
  readonly config: Config
  readonly output: Output
}

/** The forms of a command, each followed by its options: what to type, and what it does. `--help` prints them. */
export type CommandUsage = readonly (readonly [term: string, description: string])[]

export type Command = {
  /** The process whose environment it reads; default: the service. */
  readonly reader?: ConfigReader
  readonly usage: CommandUsage
  /** Its options, besides those of every command. */
  readonly options: Readonly<Record<string, { readonly type: 'string' | 'boolean' }>>
  /** Where they depend on the first word: its options, and its help. */
  readonly optionsOf?: (word: string | undefined) => Command['options']
  readonly usageOf?: (word: string | undefined) => CommandUsage | undefined
  /** Number of words; default 0. Unused words are refused: the user may have meant an account's name. */
  readonly wordsMax?: number
  run(invocation: Invocation): Promise<number>
  /** Called instead of `run` when the environment is invalid. Without it, the command fails with the error's message. */
  withoutConfig?(error: Error, output: Output): Promise<number>
}

/** Options of every command. */
export const commonOptions = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

/** Where results go: a table for people, JSON for programs. */
export type Output = {
  readonly json: boolean
  readonly color: boolean
  /** Columns of the terminal; undefined when the output is not a terminal. */
  readonly width: number | undefined
  write(text: string): void
}

/** The command failed: exit code 2 for wrong arguments, 1 for everything else. */
export class CommandError extends Error {
  readonly exitCode: 1 | 2
  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message)
    this.name = 'CommandError'
    this.exitCode = exitCode
  }
}
