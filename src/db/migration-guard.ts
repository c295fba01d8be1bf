import { setTimeout as pause } from 'node:timers/promises'
import type { Connection, Database } from './database.ts'

// Calls of the ledger's functions that wait for a migration began before it landed, and go on after it with the function as it
// was before: they would not keep what the new one keeps. So every statement that began before the migration was committed is
// refused as soon as it wants to write an account, which whatever moves money does. It is told to come again, and then meets
// the new function.

const table = 'accounts'
const name = 'refuse_earlier_calls'
// Statements of the service end by themselves before that. Should the node that migrates die half-way, the guard opens then.
const earlierMaxMs = 15_000
const pollMs = 20

/**
 * Waits until nobody uses the ledger, and keeps it so until the end of the transaction. First of all, and by the table that
 * every call locks first too: a migration that came to it by another way would meet them in a deadlock. False when there is no
 * ledger yet.
 */
export async function shutLedger(connection: Connection): Promise<boolean> {
  const [row] = await connection.query<{ exists: boolean; distributed: boolean }>(
    `select to_regclass($1) is not null as exists,
            exists (select from pg_extension where extname = 'citus') as distributed`,
    [table],
  )
  // A distributed table can have no trigger: there the nodes are stopped while the schema changes.
  if (!row!.exists || row!.distributed) return false
  await connection.execute(`lock table ${table} in access exclusive mode; ${removal}`)
  return true
}

/** The last of the migration's transaction: from its commit on earlier statements are refused, and for a while later ones too. */
export async function setGuard(connection: Connection): Promise<void> {
  await connection.execute(`
    ${guardFunction(await instant(connection, earlierMaxMs))};
    create trigger ${name} before insert or update or delete on ${table} for each statement execute function ${name}()`)
}

/**
 * After the commit: from now on only statements that are earlier than this are refused, and when they are gone, nothing is.
 * `transaction` lets nobody else migrate meanwhile.
 */
export async function liftGuard(
  database: Database,
  transaction: <Result>(work: (connection: Connection) => Promise<Result>) => Promise<Result>,
): Promise<void> {
  if (!(await isSet(database, ''))) return
  const committedAt = await transaction(async (connection) => {
    const at = await instant(connection, 0)
    if (await isSet(connection, '')) await connection.execute(guardFunction(at))
    return at
  })
  const deadline = performance.now() + earlierMaxMs
  while (performance.now() < deadline && (await isRunning(database, committedAt))) await pause(pollMs)
  await transaction(async (connection) => {
    // Another node may have landed the next migration, and set its own.
    if (await isSet(connection, committedAt)) await connection.execute(removal)
  })
}

async function isSet(connection: Connection, at: string): Promise<boolean> {
  const found = await connection.query('select from pg_proc where proname = $1 and position($2 in prosrc) > 0', [
    name,
    at,
  ])
  return found.length > 0
}

const removal = `drop trigger if exists ${name} on ${table}; drop function if exists ${name}()`

function guardFunction(before: string): string {
  return `
    create or replace function ${name}() returns trigger language plpgsql as $guard$
    begin
      if statement_timestamp() < timestamptz '${before}' then
        raise exception 'the schema was changed under this statement: run it again' using errcode = 'serialization_failure';
      end if;
      return null;
    end $guard$`
}

/** Of the database's clock. */
async function instant(connection: Connection, laterMs: number): Promise<string> {
  const [row] = await connection.query<{ at: string }>(
    `select (clock_timestamp() + $1 * interval '1 millisecond')::text as at`,
    [laterMs],
  )
  return row!.at
}

async function isRunning(database: Database, before: string): Promise<boolean> {
  const earlier = await database.query(
    `select from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and query_start < $1::timestamptz`,
    [before],
  )
  return earlier.length > 0
}
