import { createReadStream } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Readable } from 'node:stream'
import { type Month, parseMonth } from '../ledger/month.ts'
import { InvalidMonthError, type MonthReport, type MonthRow, verifyMonth, writeMonth } from '../ledger/month-file.ts'
import { differs, dropMonth, readMonthRows, sealMonth } from '../ledger/seal-month.ts'
import { findSealedMonth, listSealedMonths, MonthError, type SealedMonth } from '../ledger/sealed-months.ts'
import { format } from '../money/usdc.ts'
import { InvalidReceiptError } from '../receipts/read-fields.ts'
import { hashEntries } from '../settlement/payment-receipt.ts'
import { type PublishedTerms, readPublishedTerms } from '../settlement/published-terms.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { confirm, confirmOptions, confirmUsage } from './confirm.ts'
import { createCounter } from './counter.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'
import { writeNewFile, writeToStandardOutput } from './write-new-file.ts'

export const archiveCommand: Command = {
  usage: [
    ['penny archive', 'List the sealed months'],
    ['penny archive seal 2026-09', 'Audit the requests of a month one last time and store their totals'],
    [
      'penny archive export 2026-09 FILE',
      'Write the requests of a sealed month to a new file and verify it. "-" writes to standard output',
    ],
    [
      'penny archive verify FILE',
      'Check a file without the service. Reports every changed, added, moved or missing row',
    ],
    ['--root HASH', 'Also check that the file has this root, as listed by penny archive'],
    ['penny archive drop 2026-09 FILE', 'Delete the requests of a sealed month that are in this file'],
    ...confirmUsage,
  ],
  options: { root: { type: 'string' }, ...confirmOptions },
  wordsMax: 3,
  async run(invocation) {
    const [verb, ...words] = invocation.words
    switch (verb) {
      case undefined:
        return list(invocation)
      case 'seal':
        return seal(invocation, readMonth(words[0]))
      case 'export':
        return exportMonth(invocation, readMonth(words[0]), readFile(words[1], 'export 2026-09'))
      case 'verify':
        return verify(invocation, readFile(words[0], 'verify'))
      case 'drop':
        return drop(invocation, readMonth(words[0]), readFile(words[1], 'drop 2026-09'))
      default:
        throw new CommandError('penny archive has four verbs: seal, export, verify, drop.', 2)
    }
  },
}

function readMonth(text: string | undefined): Month {
  const month = parseMonth(text ?? '')
  if (month === undefined) throw new CommandError('Which month? Write it as 2026-09.', 2)
  return month
}

function readFile(text: string | undefined, words: string): string {
  if (text === undefined) throw new CommandError(`Which file? penny archive ${words} FILE`, 2)
  return text
}

async function list({ config, output }: Invocation): Promise<number> {
  const months = (await withDatabase(config, listSealedMonths)).map(describe)
  if (output.json) output.write(`${JSON.stringify({ months }, null, 2)}\n`)
  else if (months.length === 0) output.write('No month is sealed yet. Seal one with penny archive seal 2026-09\n')
  else printRows(output, months)
  return 0
}

function describe({ month, requests, charged, root, sealedAt, droppedAt }: SealedMonth) {
  return {
    month,
    requests,
    charged: format(charged),
    sealed_at: sealedAt.toISOString(),
    dropped_at: droppedAt?.toISOString() ?? '',
    root: root.toString('hex'),
  }
}

async function seal({ config, output }: Invocation, month: Month): Promise<number> {
  const sealed = await withDatabase(config, (database) => {
    let published: Promise<PublishedTerms> | undefined
    return sealMonth(database, month, async (payment) => {
      published ??= readPublishedTerms(database)
      return hashEntries(database, payment, (await published).terms)
    })
  })
  const described = describe(sealed)
  if (output.json) output.write(`${JSON.stringify(described, null, 2)}\n`)
  else {
    const { requests, charged, root } = described
    output.write(`${month} is sealed: ${requests} requests, ${charged} USDC charged.\nRoot: ${root}\n`)
    output.write(`Keep the root, and export the month: penny archive export ${month} ${month}.jsonl\n`)
  }
  return 0
}

async function exportMonth({ config, output }: Invocation, month: Month, file: string): Promise<number> {
  const sealed = await withDatabase(config, async (database) => {
    const found = await findSealedMonth(database, month)
    if (found === undefined) throw new MonthError(`${month} is not sealed. Seal it with penny archive seal ${month}`)
    if (found.droppedAt !== undefined) throw new MonthError(`${month} was dropped: its requests are in the file only.`)
    const text = Readable.from(writeMonth(month, counted(readMonthRows(database, month))))
    if (file === '-') await writeToStandardOutput(text)
    else await writeNewFile(text, file)
    return found
  })
  if (file === '-') return 0
  const report = await verifyFile(file)
  const isSame = report.isWhole && report.seal.root === sealed.root.toString('hex')
  if (!isSame) {
    await rm(file, { force: true })
    throw new MonthError(
      `The requests of ${month} differ from those that were sealed: their root is ${report.seal.root}, the sealed root is ${sealed.root.toString('hex')}. The file was removed. Find out what changed them, or restore a backup.`,
    )
  }
  if (output.json) output.write(`${JSON.stringify({ file, ...describe(sealed) }, null, 2)}\n`)
  else
    output.write(
      `${file}: ${sealed.requests} requests, verified against the seal. Copy it to a safe place before you drop the month.\n`,
    )
  return 0
}

async function* counted(pages: AsyncIterable<readonly MonthRow[]>): AsyncGenerator<readonly MonthRow[]> {
  const counter = createCounter('requests exported')
  let count = 0n
  try {
    for await (const rows of pages) {
      counter.show((count += BigInt(rows.length)))
      yield rows
    }
  } finally {
    counter.end()
  }
}

async function verifyFile(file: string): Promise<MonthReport> {
  const counter = createCounter('requests verified')
  try {
    return await verifyMonth(createReadStream(file), (rows) => counter.show(BigInt(rows)))
  } catch (error) {
    if (error instanceof InvalidMonthError || error instanceof InvalidReceiptError) {
      throw new CommandError(`${file}: ${error.message}`)
    }
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'EACCES' || code === 'EISDIR') {
      throw new CommandError(`${file} cannot be read: ${message}.`)
    }
    throw error
  } finally {
    counter.end()
  }
}

async function verify({ options, output }: Invocation, file: string): Promise<number> {
  const { month, seal: found, isWhole, problems, problemCount } = await verifyFile(file)
  const wanted = options.root === undefined ? undefined : String(options.root).toLowerCase().replace(/^0x/, '')
  const isWanted = wanted === undefined || wanted === found.root
  const ok = isWhole && isWanted
  if (output.json) {
    const seal = { requests: found.requests, charged_atomic: found.charged.toString(), root: found.root }
    output.write(`${JSON.stringify({ ok, month, ...seal, problem_count: problemCount, problems }, null, 2)}\n`)
    return ok ? 0 : 1
  }
  for (const problem of problems) output.write(`✗ ${problem}\n`)
  if (problemCount > problems.length) output.write(`✗ and ${problemCount - problems.length} more\n`)
  if (!isWanted) output.write(`✗ the root of the rows is ${found.root}, not ${wanted}\n`)
  output.write(`${month}: ${found.requests} requests, root ${found.root}\n`)
  output.write(
    !ok
      ? 'The file differs from the sealed month.\n'
      : wanted === undefined
        ? 'The file is consistent. Compare its root with the one in penny archive, or pass that one with --root.\n'
        : 'The file matches the sealed month.\n',
  )
  return ok ? 0 : 1
}

/** Flushes the file to disk: after the requests are deleted, a power failure must not lose it. */
async function syncToDisk(file: string): Promise<void> {
  for (const path of [file, dirname(file)]) {
    await using handle = await open(path)
    await handle.sync()
  }
}

async function drop(invocation: Invocation, month: Month, file: string): Promise<number> {
  const { config, output } = invocation
  const report = await verifyFile(file)
  if (report.month !== month) throw new CommandError(`${file} has the requests of ${report.month}, not of ${month}.`)
  if (!report.isWhole) {
    throw new CommandError(
      `${file} is damaged (${report.problems[0]}). See penny archive verify ${file}. Nothing was dropped.`,
    )
  }
  await withDatabase(config, async (database) => {
    const sealed = await findSealedMonth(database, month)
    if (sealed?.droppedAt !== undefined) throw new MonthError(`${month} was already dropped.`)
    if (sealed !== undefined && sealed.root.toString('hex') !== report.seal.root) throw new MonthError(differs(month))
    await confirm(
      invocation,
      `Delete ${report.seal.requests} requests of ${month} from the ledger? After that, only ${file} contains them.`,
    )
    await syncToDisk(file)
    await dropMonth(database, report.seal)
  })
  if (output.json) output.write(`${JSON.stringify({ month, dropped: report.seal.requests })}\n`)
  else
    output.write(
      `${month} is dropped: only ${file} contains its ${report.seal.requests} requests now. penny audit checks the ledger without them.\n`,
    )
  return 0
}
