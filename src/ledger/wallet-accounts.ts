import { createHash } from 'node:crypto'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection, Database } from '../db/database.ts'
import { derivedId, walletAccountId } from '../db/derived-id.ts'
import { rowOf } from '../db/rows.ts'
import type { Payer } from './hold-calls.ts'

/** A wallet that pays per request over x402, and its account, which exists from the first accepted payment on. */
export type X402Wallet = Payer & {
  /** Lower case. */
  readonly address: string
  /** False until its first payment is accepted. */
  readonly isKnown: boolean
}

/** The partition and id for a new account of this wallet. Concurrent first payments compute the same ones. */
function newWallet(address: string, partitions: number): X402Wallet {
  const partition = createHash('sha256').update(`penny x402 partition ${address}`).digest().readUInt32BE() % partitions
  return {
    address,
    partition,
    accountId: walletAccountId(address),
    keyId: keyIdOf(address),
    isKnown: false,
  }
}

/** Finds the account of a payment when the request that submitted it died. */
export function walletOf({
  payer: address,
  partition,
  accountId,
}: { readonly payer: string } & AccountRef): X402Wallet {
  return { address, partition, accountId, keyId: keyIdOf(address), isKnown: false }
}

function keyIdOf(address: string): string {
  return derivedId(`penny x402 key ${address}`)
}

export async function findWallet(connection: Connection, address: string, partitions: number): Promise<X402Wallet> {
  const row = await rowOf<Pick<X402Wallet, 'partition' | 'accountId' | 'keyId' | 'isKnown'>>(
    connection.queryPrepared(
      'find_x402_wallet',
      `select w.partition, w.account_id, w.key_id, a.id is not null as is_known
       from x402_wallets w left join accounts a on a.partition = w.partition and a.id = w.account_id where w.address = $1`,
      [address],
    ),
  )
  if (row === undefined) return newWallet(address, partitions)
  return { address, ...row }
}

/**
 * Records the partition of a wallet's account before the account is created. Throws when another partition is recorded: then the
 * number of partitions has changed, and the wallet must be looked up again.
 */
export async function registerWallet(database: Database, wallet: X402Wallet): Promise<void> {
  if (wallet.isKnown) return
  await database.query(
    `insert into x402_wallets (address, partition, account_id, key_id) values ($1, $2, $3, $4) on conflict do nothing`,
    [wallet.address, wallet.partition, wallet.accountId, wallet.keyId],
  )
  const { partition } = await findWallet(database, wallet.address, 1)
  if (partition !== wallet.partition) throw new Error(`wallet ${wallet.address} is in partition ${partition}`)
}
