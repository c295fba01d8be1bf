import type { Database } from '../db/database.ts'

/** Where a restored copy ended: from there on `penny recover` reads what the copy has forgotten. */
export const copiedAtCursor = 'recover from'

/** The last block that the reader of that name has read; undefined before its first. */
export async function readCursor(database: Database, name: string): Promise<bigint | undefined> {
  const [row] = await database.query<{ block: bigint }>('select block from chain_cursors where name = $1', [name])
  return row?.block
}

/** Sets cursors that were never set to the last block that need not be read. */
export async function beginCursors(
  database: Database,
  names: readonly string[],
  block: bigint,
  { onlyWithoutAddresses = false }: { readonly onlyWithoutAddresses?: boolean } = {},
): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block)
     select n, $2 from unnest($1::text[]) as n
      where not $3 or not exists (select from accounts where address is not null)
     on conflict (name) do nothing`,
    [names, block, onlyWithoutAddresses],
  )
}

/** Never backwards: a node that lags cannot make a watcher read twice what it has read. */
export async function moveCursor(database: Database, name: string, block: bigint): Promise<void> {
  await database.query(
    `insert into chain_cursors (name, block) values ($1, $2)
     on conflict (name) do update set block = greatest(chain_cursors.block, excluded.block), changed_at = clock_timestamp()`,
    [name, block],
  )
}

export async function forgetCursor(database: Database, name: string): Promise<void> {
  await database.query('delete from chain_cursors where name = $1', [name])
}
