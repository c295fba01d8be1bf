import { parseRequestId } from '../ledger/request-id.ts'
import { paymentTerms } from '../settlement/authorization.ts'
import { findReceipt } from '../settlement/find-receipt.ts'
import { readMoneyLine } from '../settlement/money-line.ts'
import { openSigner } from '../signer/signer.ts'
import { type Command, CommandError } from './command.ts'
import { withDatabase } from './with-database.ts'

export const receiptCommand: Command = {
  summary: 'print the receipt of a request, for penny verify',
  usage: 'penny receipt req_… > receipt.json',
  options: {},
  wordsMax: 1,
  async run({ words: [text = ''], config, output }) {
    const id = parseRequestId(text)
    if (id === undefined) throw new CommandError('Say which request: penny receipt req_…', 2)
    const { terms, issuer } = readMoneyLine(config.dataDir)
    using signer = openSigner({ dataDir: config.dataDir, waitMsMax: 5_000 })
    const receipt = await withDatabase(config, (database) =>
      findReceipt({ database, signer, issuer, terms: paymentTerms(terms, config.settlementEpoch) }, id),
    )
    if (receipt === undefined) throw new CommandError(`${text} has no receipt: it is unknown, or ended a moment ago.`)
    output.write(`${JSON.stringify(receipt, null, 2)}\n`)
    return 0
  },
}
