import { randomBytes } from 'node:crypto'
import type { Connection, Database } from '../db/database.ts'
import { parse } from '../money/usdc.ts'
import { type Account, createAccount, findAccount } from './accounts.ts'

/** The sandbox's demo accounts begin so: their holder may give them other names, and they are found all the same. */
const demoPrefix = '0190dea0-0000-7000-8000-'
const firstDemoId = `${demoPrefix}000000000001`
export const testMoney = parse('25')

/**
 * The sandbox's demo account: made at the first start with nothing in it, found again at every later one. After a new
 * beginning it is the one that was begun last.
 */
export async function openDemoAccount(database: Database, partitions: number): Promise<Account> {
  return (await findDemoAccount(database)) ?? createAccount(database, 'Sandbox demo', partitions, firstDemoId)
}

export async function findDemoAccount(database: Database): Promise<Account | undefined> {
  const [found] = await database.query<{ partition: number; id: string }>(
    'select partition, id from accounts where id >= $1 and id <= $2 order by created_at desc limit 1',
    [`${demoPrefix}000000000000`, `${demoPrefix}ffffffffffff`],
  )
  return found && findAccount(database, found.partition, found.id)
}

/**
 * A new account in the place of another, with its name and nothing else of it. The other one stays in the books as it is,
 * under a name that says when it was left: money that moved on a chain cannot be made not to have moved.
 */
export async function beginAgain(connection: Connection, left: Account, partitions: number): Promise<Account> {
  const id = left.id.startsWith(demoPrefix) ? `${demoPrefix}${randomBytes(6).toString('hex')}` : undefined
  const begun = await createAccount(connection, left.name, partitions, id)
  await connection.query(
    `update accounts set name = left(name, 150) || to_char(clock_timestamp() at time zone 'UTC', ' (left YYYY-MM-DD HH24:MI:SS)')
      where partition = $1 and id = $2`,
    [left.partition, left.id],
  )
  return begun
}
