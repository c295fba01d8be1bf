import { isConnectionLost } from '../db/database.ts'
import { reasonOf } from '../errors.ts'
import { CommandError, type Output } from './command.ts'

/**
 * Runs a command's work that moves money once per id. Prints the id first: after the command was killed or lost the database, a retry is
 * safe only with the same id.
 */
export async function withRetryId<Result>(
  what: 'adjustment' | 'withdrawal',
  id: string,
  output: Output,
  work: () => Promise<Result>,
): Promise<Result> {
  const line = `The id of this ${what} is ${id}. To retry it, add --id ${id}.\n`
  if (output.json) process.stderr.write(line)
  else output.write(line)
  try {
    return await work()
  } catch (error) {
    if (!isConnectionLost(error)) throw error
    throw new CommandError(
      `The outcome of this ${what} is unknown: ${reasonOf(error)}. Run the same command again with --id ${id}; it is made only once.`,
    )
  }
}
