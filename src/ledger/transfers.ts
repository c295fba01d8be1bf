import type { Database } from '../db/database.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

export type Owner = { readonly partition: number; readonly accountId: string }

/** Money on its way into an account, or arrived. */
export type DepositRow = {
  readonly id: string
  readonly amount: Usdc
  readonly source: string
  readonly sender: string | undefined
  readonly state: 'seen' | 'sweeping' | 'confirmed' | 'credited' | 'failed'
  readonly reason: string | undefined
  readonly seenAt: Date | undefined
  readonly seenBlock: bigint | undefined
  readonly seenTxHash: Buffer | undefined
  readonly sweptAt: Date | undefined
  readonly sweepTxHash: Buffer | undefined
  readonly creditedAt: Date | undefined
  readonly creditedBlock: bigint | undefined
  readonly createdAt: Date
}

/** Where a page of transfers begins: below this instant, to the millisecond, and at it below this id. */
export type TransferCursor = { readonly at: Date; readonly id: string }

export type TransferPage = { readonly below?: TransferCursor | undefined; readonly limit: number }

/**
 * Arrivals on chain with what became of them, and credits that came another way, newest first. A sweep brings several
 * arrivals in at once; its credit is known by its transaction.
 */
export async function listDeposits(
  database: Database,
  { partition, accountId }: Owner,
  { below, limit }: TransferPage,
): Promise<readonly DepositRow[]> {
  const rows = await database.query<StoredDeposit>(
    `select * from (
       select v.block::text || '-' || v.log_index as id, v.amount, 'chain' as source, v.sender,
              case when s.id is null then 'seen' when s.state in ('planned', 'sent') then 'sweeping' else s.state end as state,
              s.reason, v.seen_at, v.block as seen_block, v.tx_hash as seen_tx_hash,
              case when s.state in ('confirmed', 'credited') then s.changed_at end as swept_at, s.tx_hash as sweep_tx_hash,
              d.created_at as credited_at, d.block as credited_block, v.seen_at as created_at
         from arrivals v
         left join sweeps s on s.partition = v.partition and s.id = v.sweep_id
         left join deposits d on d.partition = v.partition and d.account_id = v.account_id and (d.id = s.id or d.tx_hash = s.tx_hash)
        where v.partition = $1 and v.account_id = $2
       union all
       select d.id::text, d.amount, d.source, null, 'credited', null, null, null, d.tx_hash, null, null,
              d.created_at, d.block, d.created_at
         from deposits d
        where d.partition = $1 and d.account_id = $2
          and not exists (select from sweeps s where s.partition = d.partition and s.account_id = d.account_id
                           and (s.id = d.id or s.tx_hash = d.tx_hash))) t
      where $3::timestamptz is null or (date_trunc('milliseconds', t.created_at), t.id) < ($3, $4)
      order by date_trunc('milliseconds', t.created_at) desc, t.id desc limit $5`,
    [partition, accountId, below?.at ?? null, below?.id ?? null, limit],
  )
  return rows.map((row) => ({
    id: row.id,
    amount: fromAtomic(row.amount),
    source: row.source,
    sender: row.sender ?? undefined,
    state: row.state,
    reason: row.reason ?? undefined,
    seenAt: row.seen_at ?? undefined,
    seenBlock: row.seen_block ?? undefined,
    seenTxHash: row.seen_tx_hash ?? undefined,
    sweptAt: row.swept_at ?? undefined,
    sweepTxHash: row.sweep_tx_hash ?? undefined,
    creditedAt: row.credited_at ?? undefined,
    creditedBlock: row.credited_block ?? undefined,
    createdAt: row.created_at,
  }))
}

type StoredDeposit = {
  readonly id: string
  readonly amount: bigint
  readonly source: string
  readonly sender: string | null
  readonly state: DepositRow['state']
  readonly reason: string | null
  readonly seen_at: Date | null
  readonly seen_block: bigint | null
  readonly seen_tx_hash: Buffer | null
  readonly swept_at: Date | null
  readonly sweep_tx_hash: Buffer | null
  readonly credited_at: Date | null
  readonly credited_block: bigint | null
  readonly created_at: Date
}
