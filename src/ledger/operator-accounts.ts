import type { Database } from '../db/database.ts'
import { rowsOf } from '../db/rows.ts'
import { isUuid } from '../db/uuid.ts'
import { type Usdc, zero } from '../money/usdc.ts'

/** An account as the operator sees it. Amounts are current; `spend` covers the last 30 days. */
export type OperatorAccount = {
  readonly id: string
  readonly name: string
  readonly address: string | undefined
  readonly ownerAddress: string | undefined
  /** Set for a wallet account, which pays over x402. */
  readonly wallet: string | undefined
  readonly available: Usdc
  readonly held: Usdc
  readonly unsettled: Usdc
  readonly spend: Usdc
  readonly suspendedAt: Date | undefined
  readonly suspendedReason: string | undefined
  readonly closedAt: Date | undefined
  readonly createdAt: Date
  /** The last one that was not refused. */
  readonly lastRequestAt: Date | undefined
}

export type AccountPage = { readonly accounts: readonly OperatorAccount[]; readonly next: AccountCursor | undefined }
export type AccountCursor = { readonly createdAt: string; readonly id: string }

export type AccountQuery = {
  /** An account id, an address (deposit, owner or sign-in wallet), or a name prefix. Empty: all. */
  readonly text: string
  /** Only wallet accounts. */
  readonly isWallet?: boolean | undefined
  readonly after: AccountCursor | undefined
  readonly limit: number
}

const spendDays = 30

/** Accounts, newest first. Each kind of search has an index, and sums are read only for the accounts of the page. */
export async function listOperatorAccounts(database: Database, query: AccountQuery): Promise<AccountPage> {
  const { text, isWallet, after, limit } = query
  const { condition, value } = await conditionOf(database, text.trim())
  const rows = await rowsOf<AccountRow>(
    database.query(
      `select a.partition, a.id, a.name, a.address, a.owner_address, a.wallet, a.gateway + a.credit - a.extended as available, a.held,
            case when a.wallet is null then a.charged - a.given_back - a.paid else greatest(0, a.charged - a.given_back - a.paid) end as unsettled,
            a.suspended_at, a.suspended_reason, a.closed_at, a.created_at, to_json(a.created_at) #>> '{}' as created_text
       from accounts a
      where ${condition} ${isWallet === true ? 'and a.wallet is not null' : ''} and ($2::timestamptz is null or (a.created_at, a.id) < ($2, $3))
      order by a.created_at desc, a.id desc limit $4`,
      [value ?? null, after?.createdAt ?? null, after?.id ?? null, limit + 1],
    ),
  )
  const shown = rows.slice(0, limit)
  const uses = await readUses(database, shown)
  const last = shown.at(-1)
  const hasMore = rows.length > limit && last !== undefined
  return {
    accounts: shown.map(({ partition: _, createdText: __, ...account }) => {
      const { spend = zero, lastRequestAt } = uses.get(account.id) ?? {}
      return { ...account, spend, lastRequestAt }
    }),
    next: hasMore ? { createdAt: last.createdText, id: last.id } : undefined,
  }
}

type AccountRow = Omit<OperatorAccount, 'spend' | 'lastRequestAt'> & {
  readonly partition: number
  /** With microseconds: a rounded cursor would repeat or skip accounts. */
  readonly createdText: string
}

type Use = { readonly id: string; readonly spend: Usdc; readonly lastRequestAt: Date | undefined }

/** In a query of its own: Citus joins no page of accounts to sums. */
async function readUses(database: Database, accounts: readonly AccountRow[]): Promise<ReadonlyMap<string, Use>> {
  if (accounts.length === 0) return new Map()
  const rows = await rowsOf<Use>(
    database.query(
      `select k.account_id as id, max(k.last_used_at) as last_request_at,
            coalesce((select sum(h.charged) from usage_hours h
                       where h.partition = k.partition and h.account_id = k.account_id
                         and h.hour >= date_trunc('hour', clock_timestamp()) - interval '${spendDays} days'), 0)::bigint as spend
       from api_keys k where k.partition = any ($1::smallint[]) and k.account_id = any ($2::uuid[])
      group by k.partition, k.account_id`,
      [[...new Set(accounts.map(({ partition }) => partition))], accounts.map(({ id }) => id)],
    ),
  )
  return new Map(rows.map((row) => [row.id, row]))
}

type Condition = { readonly condition: string; readonly value: string | readonly string[] | undefined }

/** `$1` is the value. An id alone does not contain its partition: there are at most 1024, and each costs one index lookup. */
async function conditionOf(database: Database, text: string): Promise<Condition> {
  if (text === '') return { condition: '$1::text is null', value: undefined }
  const lower = text.toLowerCase()
  const byIds = 'a.partition = any (array(select generate_series(0, 1023)::smallint)) and a.id = any ($1::uuid[])'
  if (isUuid(lower)) return { condition: byIds, value: [lower] }
  if (/^0x[0-9a-f]{40}$/.test(lower)) {
    // A union, not an OR: with an OR over two columns and a subquery PostgreSQL reads every account.
    const found = await database.query<{ id: string }>(
      `select id from accounts where address = $1
       union select id from accounts where owner_address = $1
       union select m.account_id from wallets w join memberships m on m.person_id = w.person_id where w.address = $1
       union select account_id from x402_wallets where address = $1`,
      [lower],
    )
    return { condition: byIds, value: found.map(({ id }) => id) }
  }
  return { condition: 'lower(a.name) like $1', value: `${lower.replace(/[\\%_]/g, '\\$&')}%` }
}
