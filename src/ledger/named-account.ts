import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { type Account, findAccount, findAccountsNamed, pageAccounts } from './accounts.ts'
import { findDemoAccount } from './demo-account.ts'
import { parseRequestId, partitionOf } from './request-id.ts'
import { findAccountOfRequest } from './requests.ts'
import { checkNotArchived } from './sealed-months.ts'

/**
 * The account that an operator means: by its id, its name, or one of its requests. Without a name: the only account, or the sandbox's demo
 * account.
 */
export async function accountNamed(database: Database, named: string | undefined): Promise<Account> {
  const [only, another] = named === undefined ? await findUnnamed(database) : await findNamed(database, named)
  if (only !== undefined && another === undefined) return only
  if (named === undefined)
    throw new ServiceError(
      'invalid_value',
      'Which account? Add --account ID|NAME. penny accounts lists all accounts, penny accounts create creates one.',
    )
  if (only === undefined)
    throw new ServiceError('not_found', `No account has the id or name "${named}". penny accounts lists all accounts.`)
  throw new ServiceError(
    'invalid_value',
    `More than one account is named "${named}". Give the id; penny accounts lists all accounts.`,
  )
}

async function findNamed(database: Database, named: string): Promise<readonly Account[]> {
  const requestId = parseRequestId(named)
  if (requestId === undefined) return findAccountsNamed(database, named)
  const accountId = await findAccountOfRequest(database, requestId)
  if (accountId !== undefined) return [(await findAccount(database, partitionOf(requestId), accountId))!]
  await checkNotArchived(database, requestId)
  throw new ServiceError('request_not_found', `No request has the id ${named}.`)
}

async function findUnnamed(database: Database): Promise<readonly Account[]> {
  const { value: newest = [] } = await pageAccounts(database).next()
  if (newest.length === 1) return newest
  const demo = await findDemoAccount(database)
  return demo === undefined ? [] : [demo]
}
