import { plainArray } from '../db/array-literal.ts'
import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import { openTransferStates, withdrawalKinds } from './states.ts'

// What the service owes to its accounts, and the snapshots of it. `src/settlement/liabilities.ts` makes their trees.

export type Liabilities = {
  readonly takenAt: Date
  /** Accounts that are owed something. The same index is the same account. */
  readonly accounts: readonly string[]
  readonly amounts: readonly bigint[]
  /** The sum from the running totals, which are other columns than the balances. */
  readonly booked: bigint
}

// An account is owed what it can spend, what its open requests hold, and withdrawals until they are paid. Nothing that it was charged.
const owedPerPartition = `
  select coalesce(array_agg(o.id::text) filter (where o.amount <> 0), '{}') as accounts,
         coalesce(array_agg(o.amount) filter (where o.amount <> 0), '{}') as amounts,
         coalesce(sum(o.booked), 0)::bigint as booked
    from (select a.partition, a.id, (a.gateway + a.credit + a.held + coalesce(w.amount, 0))::bigint as amount,
                 a.deposited + a.given_back - a.charged - a.withdrawn + coalesce(w.amount, 0) as booked
            from accounts a
            left join (select x.partition, x.account_id, sum(x.amount) as amount from transfers x
                        where x.kind in ${withdrawalKinds} and x.state in ${openTransferStates} group by x.partition, x.account_id) w
              on w.partition = a.partition and w.account_id = a.id) o
   group by o.partition`

const readMsMax = 60_000

/** All liabilities in one snapshot of each partition. An account never spans two. */
export async function readLiabilities(database: Database): Promise<Liabilities> {
  return database.transaction(
    async (connection) => {
      const takenAt = await readClock(connection)
      const rows = await rowsOf<Omit<Liabilities, 'takenAt'>>(connection.query(owedPerPartition))
      return {
        takenAt,
        accounts: rows.flatMap(({ accounts }) => accounts),
        amounts: rows.flatMap(({ amounts }) => amounts),
        booked: rows.reduce((sum, { booked }) => sum + booked, 0n),
      }
    },
    { isolation: 'repeatable read', readOnly: true, statementMaxMs: readMsMax },
  )
}

export type SnapshotRow = {
  readonly number: bigint
  readonly takenAt: Date
  readonly root: Buffer
  readonly sum: bigint
  readonly leaves: bigint
  readonly booked: bigint
  readonly block: bigint
  readonly onChain: bigint
  readonly previous: Buffer
  readonly digest: Buffer
  readonly signature: Buffer
  readonly saltKey: Buffer
}

/** A subtree. */
export type LeafPart = {
  readonly firstSalt: Buffer
  readonly hash: Buffer
  readonly sum: bigint
  readonly accounts: readonly string[]
  readonly amounts: readonly bigint[]
}

/** In one transaction: a snapshot without all of its leaves could not be proven. */
export async function storeSnapshot(database: Database, row: SnapshotRow, parts: readonly LeafPart[]): Promise<void> {
  const { number, takenAt, root, sum, leaves, booked, block, onChain, previous, digest, signature, saltKey } = row
  await database.transaction(async (connection) => {
    await connection.query(
      `insert into liability_snapshots (number, taken_at, root, sum, leaves, booked, block, on_chain, previous, digest, signature, salt_key)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
      [number, takenAt, root, sum, leaves, booked, block, onChain, previous, digest, signature, saltKey],
    )
    for (const [part, { firstSalt, hash, sum: partSum, accounts, amounts }] of parts.entries()) {
      await connection.query(
        `insert into liability_leaves (number, part, first_salt, hash, sum, accounts, amounts)
         values ($1, $2, $3, $4, $5, $6::uuid[], $7::bigint[])`,
        [number, part, firstSalt, hash, partSum, plainArray(accounts), plainArray(amounts)],
      )
    }
  })
}

export async function findLatestSnapshot(database: Database): Promise<SnapshotRow | undefined> {
  return (await listSnapshots(database, 1))[0]
}

export async function findSnapshot(database: Database, number: bigint): Promise<SnapshotRow | undefined> {
  return rowOf<SnapshotRow>(database.query('select * from liability_snapshots where number = $1', [number]))
}

/** Newest first. */
export async function listSnapshots(database: Database, limit: number): Promise<readonly SnapshotRow[]> {
  return rowsOf<SnapshotRow>(database.query('select * from liability_snapshots order by number desc limit $1', [limit]))
}

/** The tops of all parts in order. Empty when the leaves are no longer kept. */
export async function listParts(
  database: Database,
  number: bigint,
): Promise<readonly Pick<LeafPart, 'firstSalt' | 'hash' | 'sum'>[]> {
  return rowsOf<Pick<LeafPart, 'firstSalt' | 'hash' | 'sum'>>(
    database.query('select first_salt, hash, sum from liability_leaves where number = $1 order by part', [number]),
  )
}

export async function findPart(
  database: Database,
  number: bigint,
  part: number,
): Promise<Pick<LeafPart, 'accounts' | 'amounts'> | undefined> {
  return rowOf<Pick<LeafPart, 'accounts' | 'amounts'>>(
    database.query('select accounts::text[], amounts from liability_leaves where number = $1 and part = $2', [
      number,
      part,
    ]),
  )
}

/** A snapshot is taken soon, not only at the next hour. False before the first comparison with the chain. */
export async function wantSnapshot(database: Database): Promise<boolean> {
  const rows = await database.query('update solvency set snapshot_wanted_at = now() returning single')
  return rows.length > 0
}

const leavesHours = 48
const snapshotDays = 400

/** Keeps all leaves for two days, those of the first snapshot of each day as long as the snapshots themselves. */
export async function deleteOldSnapshots(database: Database): Promise<void> {
  await database.query(
    `delete from liability_leaves
      where number < extract(epoch from now()) / 60 - $1::int * 60
        and number not in (select min(s.number) from liability_snapshots s group by s.number / 1440)`,
    [leavesHours],
  )
  await database.query(
    `delete from liability_snapshots where number < extract(epoch from now()) / 60 - $1::int * 1440`,
    [snapshotDays],
  )
}
