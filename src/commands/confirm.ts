import { createInterface } from 'node:readline/promises'
import { CommandError, type Invocation } from './command.ts'

export const confirmOptions = { yes: { type: 'boolean' } } as const
export const confirmUsage = '      --yes                           without asking; needed where nobody can be asked'

/**
 * Asks before money moves. Somebody at a terminal answers; a script says `--yes`. Without either nothing is done: a pipe that
 * answers nothing must not count as consent.
 */
export async function confirm({ options }: Pick<Invocation, 'options'>, question: string): Promise<void> {
  if (options.yes === true) return
  if (process.stdin.isTTY !== true || process.stderr.isTTY !== true)
    throw new CommandError(`${question} Nobody can be asked here: repeat with --yes.`, 2)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`${question} [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new CommandError('Nothing was done.')
  } finally {
    terminal.close()
  }
}
