import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import type { Account } from '../ledger/accounts.ts'
import { requestDepositAddress } from '../ledger/deposit-addresses.ts'
import { CommandError } from './command.ts'

const addressMsMax = 30_000
const pollMs = 100

/** Asks for the account's deposit address. The settlement process assigns it within a second. */
export async function untilAddressed(database: Database, account: Pick<Account, 'partition' | 'id'>): Promise<string> {
  const deadline = performance.now() + addressMsMax
  for (;;) {
    const address = await requestDepositAddress(database, account)
    if (address !== undefined) return address
    if (performance.now() > deadline)
      throw new CommandError('The account has no deposit address yet. Check that the service is running.')
    await sleep(pollMs)
  }
}
