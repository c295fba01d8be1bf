import { fundsContracts } from '../openapi/contracts/funds.ts'
import { CallRefusedError, findClient } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { readRequestId } from './read-options.ts'

export const receiptCommand: Command = {
  usage: [['penny receipt req_… > receipt.json', 'Write the receipt of one request to a file']],
  options: {},
  wordsMax: 1,
  async run(invocation) {
    const { words, output } = invocation
    const id = readRequestId(words[0], 'penny receipt req_…')
    const receipt = await findClient(invocation)
      .call(fundsContracts.getReceipt, { parameters: { id } })
      .catch((error: unknown) => {
        if (!(error instanceof CallRefusedError) || error.status !== 404) throw error
        throw new CommandError(`${id} has no receipt. The request is unknown, or it ended a moment ago: try again.`)
      })
    output.write(`${JSON.stringify(receipt, null, 2)}\n`)
    return 0
  },
}
