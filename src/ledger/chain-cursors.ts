import type { Database } from '../db/database.ts'

/** The last block that the restored copy had read. `penny recover` reads the chain from here on. */
export const copiedAtCursor = 'recover from'

/** Of transfers to deposit addresses, and of deposits in the gateway's contract. */
export const depositCursors = ['arrivals', 'deposits'] as const

/** The last block that this reader has processed; undefined before its first. */
export async function readCursor(database: Database, name: string): Promise<bigint | undefined> {
  const [row] = await database.query<{ block: bigint }>('select block from chain_cursors where name = $1', [name])
  return row?.block
}

/** The cursors of several readers, by name. Readers that have not begun are left out. */
export async function readCursors(database: Database, names: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
  const rows = await database.queryPrepared<{ name: string; block: bigint }>(
    'read_chain_cursors',
    'select name, block from chain_cursors where name = any ($1)',
    [names],
  )
  return new Map(rows.map(({ name, block }) => [name, block]))
}

export type BeginOptions = {
  readonly database: Database
  /** Called at the very first start only, so that a slow node cannot delay later starts. */
  readonly readHead: () => Promise<bigint>
  /** The operator's choice of the first block. */
  readonly fromBlock: number | undefined
}

/**
 * Sets the block from which the chain is read, once, before the service hands out deposit addresses. While no account has an address,
 * no deposit can exist, so reading begins at the head: years of earlier blocks would take hours. If accounts have addresses but
 * there is no cursor, the database is a copy from elsewhere and the whole chain is read.
 */
export async function beginDeposits({ database, readHead, fromBlock }: BeginOptions): Promise<void> {
  const known = await Promise.all(depositCursors.map((name) => readCursor(database, name)))
  if (known.every((block) => block !== undefined)) return
  if (fromBlock !== undefined) return beginCursors(database, depositCursors, BigInt(fromBlock) - 1n)
  // The head is read first: deposits to an address that another node assigns in the meantime are in later blocks.
  const head = await readHead()
  await beginCursors(database, depositCursors, head, { onlyWithoutAddresses: true })
}

/** Initializes missing cursors to the last block that need not be read. */
export async function beginCursors(
  database: Database,
  names: readonly string[],
  block: bigint,
  { onlyWithoutAddresses = false }: { readonly onlyWithoutAddresses?: boolean } = {},
): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block)
     select n, $2 from unnest($1::text[]) as n
      where not $3 or not exists (select 1 from accounts where address is not null)
     on conflict (name) do nothing`,
    [names, block, onlyWithoutAddresses],
  )
}

/** Never moves backwards: a lagging node cannot make a watcher read blocks twice. */
export async function moveCursor(database: Database, name: string, block: bigint): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block) values ($1, $2)
     on conflict (name) do update set block = greatest(chain_cursors.block, excluded.block), changed_at = now()`,
    [name, block],
  )
}

/** The readers have reached the head, and no block is missing: sets their time to now, unless that was done within `newerMs`. */
export async function confirmCursors(database: Database, names: readonly string[], newerMs: number): Promise<void> {
  await database.query(
    `update chain_cursors set changed_at = now()
      where name = any ($1) and changed_at < now() - $2 * interval '1 millisecond'`,
    [names, newerMs],
  )
}

export async function deleteCursor(database: Database, name: string): Promise<void> {
  await database.query('delete from chain_cursors where name = $1', [name])
}
