import { readPublishedTerms } from '../settlement/published-terms.ts'
import { openReceiptRows } from '../settlement/receipt-rows.ts'
import { CommandError } from './command.ts'
import { createReceiptsCommand } from './receipts.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const receiptsCommand = createReceiptsCommand(async ({ options, config }, work) =>
  withDatabase(config, async (database) => {
    const { partition, id: accountId } = await whichAccount(database, options.account)
    const parts = { database, ...(await readPublishedTerms(database)) }
    const rows = await openReceiptRows(parts, { partition, accountId })
    if (rows === undefined) {
      throw new CommandError(
        'This account has no address yet, so it has no receipts. It gets one with its first API key, or by penny deposit.',
      )
    }
    return work(rows)
  }),
)
