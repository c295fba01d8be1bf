import { setTimeout as sleep } from 'node:timers/promises'
import { sandboxClient } from '../../sandbox/client.ts'
import type { Config } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import { createKey } from '../identity/api-keys.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { createLoginToken } from '../identity/login-links.ts'
import { type Account, findAccount } from '../ledger/accounts.ts'
import { openDemoAccount, testMoney } from '../ledger/demo-account.ts'
import { requestDepositAddress } from '../ledger/deposit-addresses.ts'
import { hasDeposit, hasEverArrived } from '../ledger/deposits.ts'
import type { Usdc } from '../money/usdc.ts'
import type { Service } from '../run/service.ts'
import { CommandError } from './command.ts'
import { readSandboxFile } from './sandbox-file.ts'

export type SandboxAccount = {
  readonly apiKey: string
  readonly spendable: Usdc
  /** Signs in to the dashboard once. */
  readonly loginToken: string
}

const linkSecondsMax = 24 * 60 * 60
/** Funding takes seconds. On a machine with a load of 20 it took more than a minute; aborting the start would not help. */
const fundingMsMax = 5 * 60_000
const pollMs = 50

/**
 * The demo account, with an API key and a login link. Its money takes the normal path: at the first start, from the faucet to the
 * account's address on the chain, and from there into the gateway.
 */
export async function openSandboxAccount(service: Service, config: Config): Promise<SandboxAccount> {
  const { database } = service
  const account = await openDemoAccount(database)
  if (service.money !== undefined) await fund(database, account, config)
  const { spendable } = (await findAccount(database, account.partition, account.id))!
  const owner = { partition: account.partition, accountId: account.id }
  return {
    apiKey: (await knownKey(database, config, account)) ?? (await newKey(database, account)),
    spendable,
    loginToken: await createLoginToken(database, owner, linkSecondsMax),
  }
}

/** If an earlier start was interrupted after the faucet's transfer, waits for that one. */
async function fund(database: Database, account: Account, config: Config): Promise<void> {
  const address = await waitFor(async () => requestDepositAddress(database, account))
  if (!(await hasEverArrived(database, account))) await sandboxClient(config.dataDir).faucet(address, testMoney)
  await waitFor(async () => (await hasDeposit(database, account)) || undefined)
}

async function waitFor<Result>(look: () => Promise<Result | undefined>): Promise<Result> {
  const deadline = performance.now() + fundingMsMax
  for (;;) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() > deadline) throw new CommandError('The demo account was not funded in time. See the log.')
    await sleep(pollMs)
  }
}

/** The key of the last start, if it still works for this account. The database stores only its hash. */
async function knownKey(database: Database, config: Config, account: Account): Promise<string | undefined> {
  const apiKey = readSandboxFile(config.dataDir)?.api_key
  if (apiKey === undefined) return undefined
  try {
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
