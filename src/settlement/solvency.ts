import type { Database } from '../db/database.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import type { Chain } from './chain.ts'
import { comparableBlock } from './comparable-block.ts'

export type SolvencyReport = {
  /** The last block that was looked at. */
  readonly block: string
  readonly accounts: number
  /** What the books say that the gateway's contract must have for all accounts, and what it has. */
  readonly owed_atomic: string
  readonly on_chain_atomic: string
  /** What the seller has at the gateway, and how much of it accounts are to be paid back. */
  readonly seller_atomic: string
  readonly owed_back_atomic: string
  /** How much more is owed back than the seller has; 0 when all of it is covered. */
  readonly seller_short_atomic: string
  /** Charged and not yet paid on chain. */
  readonly unsettled_atomic: string
  readonly short: readonly ShortAccount[]
}

export type ShortAccount = { readonly address: string; readonly owed_atomic: string; readonly on_chain_atomic: string }

export type SolvencyParts = { readonly database: Database; readonly chain: Chain; readonly seller: Address }

const shortMax = 20

/**
 * Compares the books with the chain, account by account. All that an account has not paid and not withdrawn is its own, at its own
 * address: the seller holds nothing of it, except what was given back after it was paid. Owed is what cannot have left the
 * contract yet. A payment or an order that waits to be handed in is not counted: the process that handed it in may have died before
 * it wrote so. What leaves the contract between the two looks makes an account seem short: its books are read once more then, and
 * the lower number counts. A node that is behind the books is not compared with.
 */
export async function checkSolvency({ database, chain, seller }: SolvencyParts): Promise<SolvencyReport> {
  const accounts = await findOwed(database)
  const [totals] = await database.query<{ owed_back: bigint; unsettled: bigint }>(
    // What a payment of the seller that is under way pays back may have left the seller already.
    `select coalesce(sum(greatest(0, least(paid, covered) - charged + given_back)), 0)::bigint as owed_back,
            coalesce(sum(greatest(0, charged - given_back - paid)), 0)::bigint as unsettled from accounts`,
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

/** What the books say that each account must have at the gateway, from one moment. */
export async function findOwed(database: Database): Promise<readonly OwedAccount[]> {
  return database.transaction((connection) => connection.query<OwedAccount>(owedByAccount, [null]), {
    isolation: 'repeatable read',
    readOnly: true,
  })
}

/** Every account has on chain what the books say, and the seller has what it owes back. */
export function isSolvent(report: SolvencyReport): boolean {
  return report.short.length === 0 && report.seller_short_atomic === '0'
}

/** By the last comparison. While the seller is short nothing leaves it: the first to ask must not be paid with the money of others. */
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

/** `GET /api/solvency`: the last comparison, with the sums in plain USDC too. Undefined before the first. */
export async function readSolvency(database: Database): Promise<object | undefined> {
  const [row] = await database.query<{ report: SolvencyReport; ok: boolean; checked_at: Date }>(
    'select report, ok, checked_at from solvency',
  )
  if (row === undefined) return undefined
  const plain = Object.fromEntries(
    Object.entries(row.report)
      .filter(([name]) => name.endsWith('_atomic'))
      .map(([name, value]) => [name.slice(0, -'_atomic'.length), format(amount(value))]),
  )
  return { object: 'solvency', ok: row.ok, checked_at: row.checked_at.toISOString(), ...row.report, ...plain }
}

function amount(value: unknown): Usdc {
  return fromAtomic(BigInt(String(value)))
}

/** What the seller owes to accounts at most: given back after it was paid, and not made up for by later charges. */
export const owedBack = 'select coalesce(sum(greatest(0, a.paid - a.charged + a.given_back)), 0) from accounts a'

const owedByAccount = `
  select a.partition, a.id, a.address,
         (a.gateway + a.credit + a.held + a.charged - a.given_back - a.paid - greatest(0, a.covered - a.paid)
          + (select coalesce(sum(w.amount), 0) from withdrawals w
              where w.partition = a.partition and w.account_id = a.id and w.state = 'requested')
         )::bigint as owed
    from accounts a
   where a.address is not null and a.deposited > 0 and ($1::uuid is null or a.id = $1)`

export type OwedAccount = {
  readonly partition: number
  readonly id: string
  readonly address: string
  readonly owed: bigint
}
