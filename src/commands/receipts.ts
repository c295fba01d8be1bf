import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'
import { type BundleItem, writeBundle } from '../receipts/bundle.ts'
import { verifyBundle } from '../receipts/verify-bundle.ts'
import type { ReceiptRows } from '../settlement/receipt-rows.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { createCounter } from './counter.ts'
import { writeNewFile, writeToStandardOutput } from './write-new-file.ts'

/** Opens the rows of the account that the options name, and closes them after `work`. */
export type WithReceiptRows = <Result>(
  invocation: Invocation,
  work: (rows: ReceiptRows) => Promise<Result>,
) => Promise<Result>

/** `penny receipts export`. The caller supplies the rows: the command itself uses no database. */
export function createReceiptsCommand(withRows: WithReceiptRows): Command {
  return {
    usage: [
      [
        'penny receipts export FILE',
        'Write all entries and payments to a new file and verify it. "-" writes to standard output without verifying',
      ],
      ['--account ID|NAME', 'Its account (default: the only account, or the demo account of the sandbox)'],
    ],
    options: { account: { type: 'string' } },
    wordsMax: 2,
    async run(invocation) {
      const [verb, file] = invocation.words
      if (verb !== 'export') throw new CommandError('Use penny receipts export FILE.', 2)
      if (file === undefined) throw new CommandError('Which file? penny receipts export receipts.jsonl', 2)
      if (file === '-') {
        await withRows(invocation, (rows) => writeToStandardOutput(textOf(rows)))
        return 0
      }
      await withRows(invocation, (rows) => writeNewFile(textOf(rows), file))
      return report(invocation, file)
    },
  }
}

function textOf({ header, items }: ReceiptRows): Readable {
  return Readable.from(writeBundle(header, counted(items), receiptCrypto.keccak256))
}

async function* counted(items: AsyncIterable<BundleItem>): AsyncGenerator<BundleItem> {
  const counter = createCounter('entries exported')
  let entries = 0n
  try {
    for await (const item of items) {
      if ('entry' in item) counter.show((entries += 1n))
      yield item
    }
  } finally {
    counter.end()
  }
}

/** Verifies the file as `penny verify` does, so that an invalid export is noticed here. */
async function report({ output }: Invocation, file: string): Promise<number> {
  const { totals, checks } = await verifyBundle(createReadStream(file), { crypto: receiptCrypto })
  const failed = checks.filter(({ ok }) => !ok)
  const ok = failed.length === 0
  if (output.json) {
    const counts = Object.entries(totals).map(([name, value]) => [name, value.toString()])
    output.write(`${JSON.stringify({ file, ok, ...Object.fromEntries(counts), checks }, null, 2)}\n`)
  } else {
    const { entries, payments, unpaid } = totals
    output.write(`${file}: ${entries} entries, ${payments} payments, ${unpaid} entries unpaid.\n`)
    for (const { name, detail } of failed) output.write(`✗ ${name.padEnd(10)} ${detail}\n`)
    output.write(ok ? `Verify it anywhere: penny verify ${file}\n` : 'The export is not valid. Run penny audit.\n')
  }
  return ok ? 0 : 1
}
