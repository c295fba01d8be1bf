import type { Config, ConfigReader } from '../config.ts'

/** What a command is given: its words, its options, and where it may write. */
export type Invocation = {
  readonly words: readonly string[]
  readonly options: Readonly<Record<string, string | boolean | undefined>>
  readonly config: Config
  readonly output: Output
}

export type Command = {
  readonly summary: string
  /** Whose environment it reads; the service's by default. */
  readonly reader?: ConfigReader
  /** Shown by `--help`, below the usage line. */
  readonly usage: string
  /** The options it takes beside the ones of every command. */
  readonly options: Readonly<Record<string, { readonly type: 'string' | 'boolean' }>>
  /** The first words it takes, for the completion of shells. */
  readonly verbs?: readonly string[]
  /** How many words it takes; none unless said. A word that nobody reads may have been meant as an account's name. */
  readonly wordsMax?: number
  run(invocation: Invocation): Promise<number>
  /** In place of `run` when the environment cannot be read; without it, the command fails with the error's one line. */
  withoutConfig?(error: Error, output: Output): Promise<number>
}

/** Of every command. */
export const commonOptions = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

/** Where results go: a table for people, JSON for programs. */
export type Output = {
  readonly json: boolean
  readonly color: boolean
  write(text: string): void
}

/** Prints rows as JSON lines' array or as an aligned table. */
export function printRows(output: Output, rows: readonly Readonly<Record<string, string | number | null>>[]): void {
  if (output.json) {
    output.write(`${JSON.stringify(rows, null, 2)}\n`)
    return
  }
  const [first] = rows
  if (first === undefined) {
    output.write('None yet.\n')
    return
  }
  const names = Object.keys(first)
  const cells = [
    names.map((name) => name.replaceAll('_', ' ')),
    ...rows.map((row) => names.map((name) => String(row[name] ?? '–'))),
  ]
  const widths = names.map((_, column) => Math.max(...cells.map((row) => row[column]!.length)))
  for (const [index, row] of cells.entries()) {
    const line = row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd()
    output.write(index === 0 && output.color ? `\x1b[1m${line}\x1b[0m\n` : `${line}\n`)
  }
}

/** The command cannot be carried out as it was given: exit code 2 for a wrong call, 1 for everything else. */
export class CommandError extends Error {
  readonly exitCode: 1 | 2
  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message)
    this.name = 'CommandError'
    this.exitCode = exitCode
  }
}
