import { type CitusReport, distributeLedger } from '../db/citus.ts'
import { migrate, migrationsFolder, pendingMigrations } from '../db/migrate.ts'
import { type Command, CommandError } from './command.ts'
import { withDatabase } from './with-database.ts'

export const migrateCommand: Command = {
  usage: [
    ['penny migrate', 'Apply pending migrations, each in one transaction'],
    ['penny migrate pending', 'List pending migrations. Exit code 1 if there are any'],
  ],
  options: {},
  wordsMax: 1,
  async run({ words: [verb = 'apply'], config, output }) {
    if (verb !== 'apply' && verb !== 'pending')
      throw new CommandError(`penny migrate has no verb "${verb}". It has: pending.`, 2)
    return withDatabase(
      config,
      async (database) => {
        const pending = await pendingMigrations(database, migrationsFolder)
        const print = (line: string) => void (output.json || output.write(`${line}\n`))
        const applied = verb === 'apply' ? (await migrate(database, migrationsFolder, print)).applied : []
        const cluster = verb === 'apply' ? await distributeLedger(database, config.ledgerPartitions) : undefined
        if (output.json) output.write(`${JSON.stringify({ pending: verb === 'apply' ? [] : pending, applied })}\n`)
        else if (verb === 'apply')
          output.write(applied.length === 0 ? 'Nothing to do.\n' : `Applied ${applied.join(', ')}.\n`)
        else output.write(pending.length === 0 ? 'Nothing is pending.\n' : `${pending.join('\n')}\n`)
        if (cluster !== undefined) print(describe(cluster, config.ledgerPartitions))
        return verb === 'pending' && pending.length > 0 ? 1 : 0
      },
      { migrates: false },
    )
  },
}

function describe({ workers, tables, functions }: CitusReport, partitions: number): string {
  const found = `Citus, ${workers} worker${workers === 1 ? '' : 's'}, ${partitions} partition${partitions === 1 ? '' : 's'}: `
  if (partitions < workers)
    return `${found}some workers stay empty. Set LEDGER_PARTITIONS well above the number of workers before the first account.`
  return `${found}distributed ${tables} tables and ${functions} functions.`
}
