import { OperatorError } from '../errors.ts'
import type { Connection } from './database.ts'

// A database and its copy must not both be used, and an unfinished copy must not be used at all: both would spend the same money again.
// This table marks them from the first step of a copy to the last.

export type CopySide = 'source' | 'target'

/** The database's mark; undefined in normal use. */
export async function findCopyMarker(connection: Connection): Promise<{ side: CopySide; other: string } | undefined> {
  const [found] = await connection.query<{ name: string | null }>("select to_regclass('database_copy')::text as name")
  if (found?.name == null) return undefined
  const [marker] = await connection.query<{ side: CopySide; other: string }>('select side, other from database_copy')
  return marker
}

/** `other` names the other database, for people. */
export async function writeCopyMarker(connection: Connection, side: CopySide, other: string): Promise<void> {
  await connection.execute(`create table if not exists database_copy (
    single boolean     primary key default true check (single),
    side   text        not null check (side in ('source', 'target')),
    other  text        not null,
    at     timestamptz not null default clock_timestamp())`)
  await connection.query(
    `insert into database_copy (side, other) values ($1, $2)
     on conflict (single) do update set side = excluded.side, other = excluded.other, at = excluded.at`,
    [side, other],
  )
}

export async function removeCopyMarker(connection: Connection): Promise<void> {
  await connection.execute('drop table if exists database_copy')
}

/** Call it before a database is used. @throws when the database was copied to another one, or is an unfinished copy */
export async function refuseCopied(connection: Connection): Promise<void> {
  const marker = await findCopyMarker(connection)
  if (marker !== undefined)
    throw new OperatorError(
      marker.side === 'source'
        ? `This database was copied to ${marker.other}, which replaces it. Set DATABASE_URL to that one. If it was never used, penny copy-database --undo returns to this one.`
        : `This database is an unfinished copy of ${marker.other}. Run penny copy-database again, or use another database.`,
    )
}
