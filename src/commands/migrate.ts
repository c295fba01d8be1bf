import type { Database } from '../db/database.ts'
import { migrate, pendingMigrations } from '../db/migrate.ts'
import { type Command, CommandError } from './command.ts'
import { migrationsFolder, withDatabase } from './with-database.ts'

const citusHint =
  'This database has Citus: now run the second part of deploy/citus.sql (create_distributed_function) again, so that workers get the new functions.'

export const migrateCommand: Command = {
  summary: 'apply pending database migrations',
  usage: [
    ['penny migrate', 'Apply pending migrations, each in one transaction'],
    ['penny migrate pending', 'List pending migrations. Exit code 1 if there are any'],
  ],
  options: {},
  verbs: ['apply', 'pending'],
  wordsMax: 1,
  async run({ words: [verb = 'apply'], config, output }) {
    if (verb !== 'apply' && verb !== 'pending')
      throw new CommandError(`penny migrate has no verb "${verb}". It has: pending.`, 2)
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
        if (applied.length > 0 && (await hasCitus(database))) tell(citusHint)
        return verb === 'pending' && pending.length > 0 ? 1 : 0
      },
      { migrates: false },
    )
  },
}

/** On Citus, functions are replaced on the coordinator alone. */
async function hasCitus(database: Database): Promise<boolean> {
  const rows = await database.query("select from pg_extension where extname = 'citus'")
  return rows.length > 0
}
