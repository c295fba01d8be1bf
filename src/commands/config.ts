import { describeConfig } from '../config.ts'
import type { Command } from './command.ts'
import { printRows } from './table.ts'

export const configCommand: Command = {
  summary: 'show every setting, its value, and where that comes from',
  usage: `penny config                      secrets are hidden; a value from a file came by the variable's _FILE twin.
                                    What belongs to a provider or a chain is shown once that is named
      --set                           only what is set`,
  options: { set: { type: 'boolean' } },
  async run({ options, output }) {
    const entries = describeConfig().filter(({ origin }) => options.set !== true || origin !== 'default')
    printRows(
      output,
      entries.map(({ name, value, origin }) => ({ name, value: value ?? null, origin })),
    )
    return 0
  },
}
