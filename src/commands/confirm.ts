import { createInterface } from 'node:readline/promises'
import { CommandError, type CommandUsage, type Invocation } from './command.ts'

export const confirmOptions = { yes: { type: 'boolean' } } as const
export const confirmUsage: CommandUsage = [['--yes', 'Do not ask for confirmation. Required without a terminal']]

/**
 * Asks before money moves. A person at a terminal answers; a script passes `--yes`. Without either nothing is done: a pipe that
 * answers nothing must not count as consent.
 */
export async function confirm({ options }: Pick<Invocation, 'options'>, question: string): Promise<void> {
  if (options.yes === true) return
  if (process.stdin.isTTY !== true || process.stderr.isTTY !== true)
    throw new CommandError(`${question} There is no terminal to confirm on. Add --yes to confirm.`, 2)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`${question} [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new CommandError('Nothing was done.')
  } finally {
    terminal.close()
  }
}
