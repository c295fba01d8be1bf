import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { readCursor } from '../ledger/chain-cursors.ts'
import { findFreeze, freezeLedger } from '../ledger/freeze.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import type { Chain } from './chain.ts'

export type SolvencyReport = {
  readonly block: string
  readonly accounts: number
  /** What the gateway's contract must have for all accounts according to the ledger, and what it has. */
  readonly owed_atomic: string
  readonly on_chain_atomic: string
  /** The seller's balance at the gateway, and how much of it is owed to accounts. */
  readonly seller_atomic: string
  readonly owed_back_atomic: string
  /** How much more the seller owes than it has; 0 when it is covered. */
  readonly seller_short_atomic: string
  /** Charged and not yet paid on chain. */
  readonly unsettled_atomic: string
  readonly short: readonly ShortAccount[]
}

export type ShortAccount = { readonly address: string; readonly owed_atomic: string; readonly on_chain_atomic: string }

export type SolvencyParts = { readonly database: Database; readonly chain: Chain; readonly seller: Address }

const shortMax = 20

export type SolvencyWatchParts = SolvencyParts & {
  readonly onAlarm: (what: string, details: object) => void
  /** Wait before the second comparison: the first may have read the ledger and the chain at different times. */
  readonly recheckMs: number
}

/** Its number in ARCHITECTURE.md and in the runbooks. */
export const solvencyInvariant = 'I12'

/**
 * Compares the ledger with the chain. A short account freezes the ledger until an operator acts. A short seller stops only payments by
 * the seller: one customer's refund must not stop the requests of all.
 */
export async function watchSolvency({ onAlarm, recheckMs, ...parts }: SolvencyWatchParts): Promise<void> {
  const { database } = parts
  const wasFrozen = (await findFreeze(database)) !== undefined
  const first = await checkSolvency(parts)
  const report = isSolvent(first) ? first : await sleep(recheckMs).then(() => checkSolvency(parts))
  await recordSolvency(database, report)
  if (report.seller_short_atomic !== '0') onAlarm('the seller has less than it owes back', { report })
  if (report.short.length === 0) return
  onAlarm('the chain has less than the ledger says', { report })
  // The ledger may have been repaired and opened during this comparison, for example by penny recover. The next comparison decides.
  if (wasFrozen) return
  const reason = `${solvencyInvariant} is broken: the chain has less than the ledger says at block ${report.block}`
  await freezeLedger(database, reason)
}

/**
 * Compares the ledger with the chain, account by account. An account is short if `owed` is more than its balance in the contract: money
 * that an account has not paid or withdrawn is there, under the account's own address. The seller only owes refunds of charges that
 * were already paid. `owed` is what cannot have left the contract yet. Payments and withdrawals that wait for submission are not part
 * of it: a process may have submitted one and died before it recorded that. Money that leaves the contract between the two reads makes
 * an account seem short, so its ledger sums are read again and the lower number counts. Throws when the node is behind the ledger.
 */
export async function checkSolvency({ database, chain, seller }: SolvencyParts): Promise<SolvencyReport> {
  const accounts = await findOwed(database)
  const [totals] = await database.query<{ owed_back: bigint; unsettled: bigint }>(
    // Money of an open payment by the seller may already have left the seller. What a wallet spent of a payment that failed later is
    // the seller's loss: it is charged, but reduces no other credit of that wallet.
    `select coalesce(sum(greatest(0, least(a.paid, a.covered) + a.lost - a.charged + a.given_back)), 0)::bigint as owed_back,
            coalesce(sum(greatest(0, a.charged - a.given_back - a.paid)), 0)::bigint as unsettled
       from accounts a`,
  )
  const block = await comparableBlock(database, chain)
  const short: ShortAccount[] = []
  let [owed, onChain] = [0n, 0n]
  const balances = await chain.gatewayBalances([...accounts.map(({ address }) => address as Address), seller], block)
  for (const [index, account] of accounts.entries()) {
    const balance = balances[index]!
    const again = balance < account.owed ? await database.query<OwedAccount>(owedByAccount, [account.id]) : [account]
    const least = again.reduce((lowest, row) => (row.owed < lowest ? row.owed : lowest), account.owed)
    owed += least
    onChain += balance
    if (balance < least && short.length < shortMax) {
      short.push({ address: account.address, owed_atomic: `${least}`, on_chain_atomic: `${balance}` })
    }
  }
  const sellerHas = balances.at(-1)!
  const { owed_back: back, unsettled } = totals!
  return {
    block: block.toString(),
    accounts: accounts.length,
    owed_atomic: owed.toString(),
    on_chain_atomic: onChain.toString(),
    seller_atomic: sellerHas.toString(),
    owed_back_atomic: back.toString(),
    seller_short_atomic: (back > sellerHas ? back - sellerHas : 0n).toString(),
    unsettled_atomic: unsettled.toString(),
    short,
  }
}

/** What each account must have at the gateway according to the ledger, as of one instant. */
export async function findOwed(database: Database): Promise<readonly OwedAccount[]> {
  return database.transaction((connection) => connection.query<OwedAccount>(owedByAccount, [null]), {
    isolation: 'repeatable read',
    readOnly: true,
  })
}

/** Every account has on chain what the ledger says, and the seller has what it owes. */
export function isSolvent(report: SolvencyReport): boolean {
  return report.short.length === 0 && report.seller_short_atomic === '0'
}

/** According to the last comparison. A short seller pays nothing: the first to ask must not be paid with money that is owed to others. */
export async function isSellerShort(database: Database): Promise<boolean> {
  const [row] = await database.query(`select from solvency where (report->>'seller_short_atomic')::numeric > 0`)
  return row !== undefined
}

export async function recordSolvency(database: Database, report: SolvencyReport): Promise<void> {
  await database.query(
    `insert into solvency (single, report, ok) values (true, $1, $2)
     on conflict (single) do update set report = excluded.report, ok = excluded.ok, checked_at = now()`,
    [JSON.stringify(report), isSolvent(report)],
  )
}

/** The last comparison, for `GET /api/solvency`, with the sums in decimal USDC added. Undefined before the first. */
export async function readSolvency(database: Database): Promise<object | undefined> {
  const [row] = await database.query<{ report: SolvencyReport; ok: boolean; checked_at: Date }>(
    'select report, ok, checked_at from solvency',
  )
  if (row === undefined) return undefined
  const plain = Object.fromEntries(
    Object.entries(row.report)
      .filter(([name]) => name.endsWith('_atomic'))
      .map(([name, value]) => [name.slice(0, -'_atomic'.length), format(fromAtomic(BigInt(String(value))))]),
  )
  return { object: 'solvency', ok: row.ok, checked_at: row.checked_at.toISOString(), ...row.report, ...plain }
}

const owedByAccount = `
  select a.partition, a.id, a.address,
         (a.gateway + a.credit + a.held + a.charged - a.given_back - a.paid - greatest(0, a.covered - a.paid)
          + (select coalesce(sum(w.amount), 0) from transfers w
              where w.partition = a.partition and w.account_id = a.id and w.kind = 'withdrawal' and w.state = 'requested')
         )::bigint as owed
    from accounts a
   where a.address is not null and a.deposited > 0 and ($1::uuid is null or a.id = $1)`

export type OwedAccount = {
  readonly partition: number
  readonly id: string
  readonly address: string
  readonly owed: bigint
}

/**
 * The node's latest block, at which balances can be compared with ledger sums that were read before. Throws when the node is behind the
 * ledger, as one of several nodes behind one URL may be: money that has arrived would seem to be missing.
 */
export async function comparableBlock(database: Database, chain: Chain): Promise<bigint> {
  const read = await readCursor(database, 'deposits')
  const block = await chain.finalBlock()
  if (read === undefined || block >= read) return block
  throw new Error(
    `the chain node is at block ${block}, but the ledger has read up to block ${read}: balances were not compared`,
  )
}
