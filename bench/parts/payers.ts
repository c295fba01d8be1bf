import { randomUUID } from 'node:crypto'
import type { Database } from '../../src/db/database.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { parse } from '../../src/money/usdc.ts'

/** Accounts with more money than a bench can spend, and a key with a limit each. */
export async function createPayers(database: Database, count: number, partitions = 1): Promise<readonly Payer[]> {
  const payers: Payer[] = []
  for (let index = 0; index < count; index += 1) {
    const account = await createAccount(database, `bench ${index}`, partitions)
    await creditDeposit(database, {
      partition: account.partition,
      id: randomUUID(),
      accountId: account.id,
      amount: parse('1000000'),
      source: 'bench',
    })
    const { id } = await createKey(database, {
      partition: account.partition,
      accountId: account.id,
      name: 'bench',
      limit: parse('1000000'),
      limitWindow: 'day',
    })
    payers.push({ partition: account.partition, accountId: account.id, keyId: id })
  }
  return payers
}
