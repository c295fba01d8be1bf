import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { findLatestSnapshot, listSnapshots, type SnapshotRow, wantSnapshot } from '../ledger/liabilities.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { toHex } from '../receipts/hex.ts'
import { type Command, CommandError } from './command.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'

const snapshotsMax = 48
/** A minute has one snapshot, so a second one waits for the next minute. */
const publishMsMax = 120_000
const pollMs = 500

export const liabilitiesCommand: Command = {
  usage: [
    ['penny liabilities', 'Show the latest snapshots of what is owed to all accounts'],
    ['penny liabilities publish', 'Take one now, instead of at the next hour. The running service takes it'],
  ],
  options: {},
  wordsMax: 1,
  async run({ words: [verb], config, output }) {
    if (verb !== undefined && verb !== 'publish')
      throw new CommandError(`penny liabilities has no verb "${verb}". It has: publish.`, 2)
    return withDatabase(config, async (database) => {
      const rows = verb === undefined ? await listSnapshots(database, snapshotsMax) : [await publish(database)]
      printRows(output, rows.map(render), { omit: ['root', 'block', 'on_chain'] })
      return 0
    })
  },
}

async function publish(database: Database): Promise<SnapshotRow> {
  const before = await findLatestSnapshot(database)
  if (!(await wantSnapshot(database)))
    throw new CommandError('Ledger and chain were not compared yet. Start the service on the machine that settles.')
  const deadline = performance.now() + publishMsMax
  for (;;) {
    const latest = await findLatestSnapshot(database)
    if (latest !== undefined && latest.number !== before?.number) return latest
    if (performance.now() > deadline)
      throw new CommandError(
        'No snapshot was taken. The machine that settles must run, its chain node must respond, and an account must have a balance. See the log of the service.',
      )
    await sleep(pollMs)
  }
}

function render({ number, takenAt, leaves, sum, onChain, block, root }: SnapshotRow) {
  return {
    snapshot: number.toString(),
    taken_at: takenAt.toISOString(),
    accounts: Number(leaves),
    owed: format(fromAtomic(sum)),
    on_chain: format(fromAtomic(onChain)),
    block: block.toString(),
    root: toHex(root),
  }
}
