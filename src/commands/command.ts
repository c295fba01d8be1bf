import type { Config, ConfigReader } from '../config/config.ts'

/** The input of a command: words, options and output. */
export type Invocation = {
  readonly words: readonly string[]
  readonly options: Readonly<Record<string, string | boolean | undefined>>
  readonly config: Config
  readonly output: Output
}

/** The calls of a command, each followed by its options: what to type, and what it does. `--help` lays them out. */
export type CommandUsage = readonly (readonly [term: string, description: string])[]

export type Command = {
  /** Whose environment it reads; the service's by default. */
  readonly reader?: ConfigReader
  readonly usage: CommandUsage
  /** The options it takes beside the ones of every command. */
  readonly options: Readonly<Record<string, { readonly type: 'string' | 'boolean' }>>
  /** The first words it takes, for the completion of shells. */
  readonly verbs?: readonly string[]
  /** Number of words; default 0. Unused words are refused: they may be meant as an account's name. */
  readonly wordsMax?: number
  run(invocation: Invocation): Promise<number>
  /** In place of `run` when the environment cannot be read; without it, the command fails with the error's one line. */
  withoutConfig?(error: Error, output: Output): Promise<number>
}

/** Options of every command. */
export const commonOptions = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

/** Where results go: a table for people, JSON for programs. */
export type Output = {
  readonly json: boolean
  readonly color: boolean
  /** Columns of the terminal; undefined where the output is none. */
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
