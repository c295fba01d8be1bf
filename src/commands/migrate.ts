import { migrate, pendingMigrations } from '../db/migrate.ts'
import { type Command, CommandError } from './command.ts'
import { migrationsFolder, withDatabase } from './with-database.ts'

export const migrateCommand: Command = {
  summary: 'bring the database up to this version',
  usage: `penny migrate                     applies what is pending, each step in one transaction
  penny migrate pending             only says what that is; exit code 1 when there is something`,
  options: {},
  verbs: ['apply', 'pending'],
  wordsMax: 1,
  async run({ words: [verb = 'apply'], config, output }) {
    if (verb !== 'apply' && verb !== 'pending')
      throw new CommandError(`penny migrate does not know "${verb}": it applies, or shows what is pending.`, 2)
    return withDatabase(
      config,
      async (database) => {
        const pending = await pendingMigrations(database, migrationsFolder)
        const tell = (line: string) => void (output.json || output.write(`${line}\n`))
        const applied = verb === 'apply' ? (await migrate(database, migrationsFolder, tell)).applied : []
        if (output.json) output.write(`${JSON.stringify({ pending: verb === 'apply' ? [] : pending, applied })}\n`)
        else if (verb === 'apply')
          output.write(applied.length === 0 ? 'Nothing to do.\n' : `Applied ${applied.join(', ')}.\n`)
        else output.write(pending.length === 0 ? 'Nothing is pending.\n' : `${pending.join('\n')}\n`)
        return verb === 'pending' && pending.length > 0 ? 1 : 0
      },
      { migrates: false },
    )
  },
}
