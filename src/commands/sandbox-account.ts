import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config.ts'
import type { Database } from '../db/database.ts'
import { createKey, KeyFinder } from '../identity/api-keys.ts'
import { type Account, createAccount, creditDeposit, findAccount, listAccounts } from '../ledger/accounts.ts'
import { parse, type Usdc } from '../money/usdc.ts'

export type SandboxAccount = {
  readonly apiKey: string
  readonly spendable: Usdc
  /** For a one-time dashboard link. */
  readonly link: string
}

const accountName = 'Sandbox demo'
const testMoney = parse('25')

/** The demo account: made at the first start with its test money, found again at every later one with what is left. */
export async function openSandboxAccount(database: Database, config: Config): Promise<SandboxAccount> {
  const accounts = await listAccounts(database)
  const account =
    accounts.find((candidate) => candidate.name === accountName) ??
    (await createAccount(database, accountName, config.ledgerPartitions))
  // The deposit's id is the account's own: a start that was cut short after opening the account credits it now, once.
  await creditDeposit(database, {
    ...account,
    id: account.id,
    accountId: account.id,
    amount: testMoney,
    source: 'sandbox',
  })
  const { spendable } = (await findAccount(database, account.partition, account.id))!
  return {
    apiKey: (await knownKey(database, config, account)) ?? (await newKey(database, account)),
    spendable,
    link: randomBytes(24).toString('base64url'),
  }
}

/** The key of the last start, when it is still good for this account. The database itself cannot give a key back. */
async function knownKey(database: Database, config: Config, account: Account): Promise<string | undefined> {
  try {
    const { api_key: apiKey } = JSON.parse(readFileSync(join(config.dataDir, 'sandbox.json'), 'utf8')) as {
      api_key: string
    }
    const bearer = await new KeyFinder({ database, now: Date.now }).find(apiKey)
    return bearer.accountId === account.id ? apiKey : undefined
  } catch {
    return undefined
  }
}

async function newKey(database: Database, account: Account): Promise<string> {
  const { secret } = await createKey(database, {
    partition: account.partition,
    accountId: account.id,
    name: 'Sandbox demo key',
  })
  return secret
}
