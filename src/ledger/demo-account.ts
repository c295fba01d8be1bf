import type { Database } from '../db/database.ts'
import { parse } from '../money/usdc.ts'
import { type Account, createAccount, findAccount } from './accounts.ts'

/** The same in every sandbox: its holder may give it another name, and it is found all the same. */
export const demoAccountId = '0190dea0-0000-7000-8000-000000000001'
export const testMoney = parse('25')

/** The sandbox's demo account: made at the first start with nothing in it, found again at every later one. */
export async function openDemoAccount(database: Database, partitions: number): Promise<Account> {
  const [found] = await database.query<{ partition: number }>('select partition from accounts where id = $1', [
    demoAccountId,
  ])
  return found === undefined
    ? createAccount(database, 'Sandbox demo', partitions, demoAccountId)
    : (await findAccount(database, found.partition, demoAccountId))!
}
