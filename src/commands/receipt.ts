import { findReceipt } from '../settlement/find-receipt.ts'
import { readPublishedTerms } from '../settlement/published-terms.ts'
import { type Command, CommandError } from './command.ts'
import { readRequestId } from './read-options.ts'
import { withDatabase } from './with-database.ts'

export const receiptCommand: Command = {
  usage: [['penny receipt req_… > receipt.json', 'Write the receipt of one request to a file']],
  options: {},
  wordsMax: 1,
  async run({ words: [text], config, output }) {
    const id = readRequestId(text, 'penny receipt req_…')
    const receipt = await withDatabase(config, async (database) =>
      findReceipt({ database, ...(await readPublishedTerms(database)) }, id),
    )
    if (receipt === undefined)
      throw new CommandError(`${text} has no receipt. The request is unknown, or it ended a moment ago: try again.`)
    output.write(`${JSON.stringify(receipt, null, 2)}\n`)
    return 0
  },
}
