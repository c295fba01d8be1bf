import { randomBytes } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'
import { parse } from '../money/usdc.ts'
import { type Account, createAccount, findAccount } from './accounts.ts'

/** The id prefix of the sandbox's demo accounts: finds them even after their holder renames them. */
const demoPrefix = '0190dea0-0000-7000-8000-'
const firstDemoId = `${demoPrefix}000000000001`
export const testMoney = parse('25')

/**
 * The sandbox's demo account: created empty at the first start and found again at every later one. After a reset, the newest one.
 */
export async function openDemoAccount(database: Database): Promise<Account> {
  const found = await findDemoAccount(database)
  if (found !== undefined) return found
  // Two nodes may start for the first time at the same moment. With a fixed partition the second insert conflicts with the
  // first.
  await database.query('insert into accounts (partition, id, name) values (0, $1, $2) on conflict do nothing', [
    firstDemoId,
    'Sandbox demo',
  ])
  return (await findAccount(database, 0, firstDemoId))!
}

/** Ids of other accounts are random and never begin like this. */
export function isDemoAccount(id: string): boolean {
  return id.startsWith(demoPrefix)
}

export async function findDemoAccount(database: Database): Promise<Account | undefined> {
  const [found] = await database.query<{ partition: number; id: string }>(
    'select partition, id from accounts where id >= $1 and id <= $2 order by created_at desc limit 1',
    [`${demoPrefix}000000000000`, `${demoPrefix}ffffffffffff`],
  )
  return found && findAccount(database, found.partition, found.id)
}

/**
 * Replaces an account by a new, empty one with the same name. The old one stays in the ledger under a name with its end date:
 * transfers on a chain cannot be undone.
 */
export async function beginAgain(connection: Connection, left: Account, partitions: number): Promise<Account> {
  const id = left.id.startsWith(demoPrefix) ? `${demoPrefix}${randomBytes(6).toString('hex')}` : undefined
  const begun = await createAccount(connection, left.name, partitions, id)
  await connection.query(
    `update accounts set name = left(name, 150) || to_char(now() at time zone 'UTC', ' (left YYYY-MM-DD HH24:MI:SS)')
      where partition = $1 and id = $2`,
    [left.partition, left.id],
  )
  return begun
}

/**
 * Dates an account, its deposits and these keys before the first request of a replay. Otherwise statements would show charges before
 * any money, and a negative opening balance. The chain itself cannot be changed: blocks and transactions stay those of today.
 */
export async function dateBack(
  database: Database,
  { partition, id }: Account,
  keyIds: readonly string[],
  first: Date,
): Promise<void> {
  await database.transaction(async (connection) => {
    await connection.query('update api_keys set created_at = $2 where partition = $1 and id = any ($3::uuid[])', [
      partition,
      first,
      keyIds,
    ])
    for (const statement of [
      'update accounts set created_at = least(created_at, $3) where partition = $1 and id = $2',
      'update arrivals set seen_at = least(seen_at, $3) where partition = $1 and account_id = $2',
      `update sweeps set created_at = least(created_at, $3), changed_at = least(changed_at, $3)
        where partition = $1 and account_id = $2`,
      'update deposits set created_at = least(created_at, $3) where partition = $1 and account_id = $2',
    ]) {
      await connection.query(statement, [partition, id, first])
    }
  })
}
