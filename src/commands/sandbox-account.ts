import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config.ts'
import type { Database } from '../db/database.ts'
import { createKey, KeyFinder } from '../identity/api-keys.ts'
import { type Account, createAccount, findAccount, listAccounts } from '../ledger/accounts.ts'
import { findDepositAddress, hasDeposit, hasEverArrived } from '../ledger/deposits.ts'
import { parse, type Usdc } from '../money/usdc.ts'
import { sandboxOrders } from '../sandbox/orders.ts'
import type { Service } from '../service.ts'
import { CommandError } from './command.ts'

export type SandboxAccount = {
  readonly apiKey: string
  readonly spendable: Usdc
  /** For a one-time dashboard link. */
  readonly link: string
}

const accountName = 'Sandbox demo'
const testMoney = parse('25')
const fundingMsMax = 30_000
const pollMs = 50

/**
 * The demo account: made at the first start with its test money, found again at every later one with what is left. The
 * money comes as everybody's does: from the faucet to the account's address on the chain, and from there into the gateway.
 */
export async function openSandboxAccount(service: Service, config: Config): Promise<SandboxAccount> {
  const { database } = service
  const accounts = await listAccounts(database)
  const account =
    accounts.find((candidate) => candidate.name === accountName) ??
    (await createAccount(database, accountName, config.ledgerPartitions))
  if (service.money !== undefined) await fund(database, account, config)
  const { spendable } = (await findAccount(database, account.partition, account.id))!
  return {
    apiKey: (await knownKey(database, config, account)) ?? (await newKey(database, account)),
    spendable,
    link: randomBytes(24).toString('base64url'),
  }
}

/** A start that was cut short after the gift finds it on its way, and waits for it. */
async function fund(database: Database, account: Account, config: Config): Promise<void> {
  const address = await waitFor(async () => findDepositAddress(database, account))
  if (!(await hasEverArrived(database, account))) await sandboxOrders(config.dataDir).faucet(address, testMoney)
  await waitFor(async () => (await hasDeposit(database, account)) || undefined)
}

async function waitFor<Result>(look: () => Promise<Result | undefined>): Promise<Result> {
  const deadline = performance.now() + fundingMsMax
  for (;;) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() > deadline) throw new CommandError('The demo account was not funded in time: see the log.')
    await sleep(pollMs)
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
