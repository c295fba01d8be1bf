import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { verifyBundle } from '../receipts/verify-bundle.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { accountOption, accountUsage, findClient } from './client.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { createCounter } from './counter.ts'
import { writeNewFile, writeToStandardOutput } from './write-new-file.ts'

export const receiptsCommand: Command = {
  usage: [
    [
      'penny receipts export FILE',
      'Write all entries and payments to a new file and verify it. "-" writes to standard output without verifying',
    ],
    ...accountUsage,
  ],
  options: accountOption,
  wordsMax: 2,
  async run(invocation) {
    const [verb, file] = invocation.words
    if (verb !== 'export') throw new CommandError('Use penny receipts export FILE.', 2)
    if (file === undefined) throw new CommandError('Which file? penny receipts export receipts.jsonl', 2)
    const { body } = await findClient(invocation).open(fundsContracts.exportReceipts)
    const text = Readable.from(counted(body!))
    if (file === '-') {
      await writeToStandardOutput(text)
      return 0
    }
    await writeNewFile(text, file)
    return report(invocation.output, file)
  },
}

const newLine = 10

async function* counted(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const counter = createCounter('entries exported')
  let lines = 0
  try {
    for await (const piece of body) {
      lines += piece.reduce((sum, byte) => (byte === newLine ? sum + 1 : sum), 0)
      counter.show(BigInt(lines))
      yield piece
    }
  } catch {
    throw new CommandError('The service ended the export early. Nothing was kept; run the command again.')
  } finally {
    counter.end()
  }
}

/** Verifies the file as `penny verify` does, so that an invalid export is noticed here. */
async function report(output: Output, file: string): Promise<number> {
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
    output.write(
      ok ? `Verify it anywhere: penny verify ${file}\n` : 'The export is not valid. Report it to the operator.\n',
    )
  }
  return ok ? 0 : 1
}
