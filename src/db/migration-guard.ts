import { setTimeout as pause } from 'node:timers/promises'
import type { Connection, Database } from './database.ts'

// Calls of ledger functions that wait for a migration began before it was committed, and afterwards continue with the old function,
// which may violate the invariants of the new one. So every statement that began before the commit is refused as soon as it writes
// to `accounts`, which every money movement does. It fails with a serialization error, is retried, and then runs the new function.

const table = 'accounts'
const name = 'refuse_earlier_calls'
// Statements of the service end within this time. If the migrating node dies half-way, the guard expires then.
const earlierMaxMs = 15_000
const pollMs = 20

/**
 * Waits until no statement uses the ledger, and keeps it locked until the end of the transaction. This must come first, and must
 * lock the table that every call also locks first: any other order could deadlock with them. Returns false when there is no ledger
 * yet.
 */
export async function shutLedger(connection: Connection): Promise<boolean> {
  const [row] = await connection.query<{ exists: boolean; distributed: boolean }>(
    `select to_regclass($1) is not null as exists,
            exists (select from pg_extension where extname = 'citus') as distributed`,
    [table],
  )
  // A distributed table cannot have a trigger: on Citus the nodes are stopped while the schema changes.
  if (!row!.exists || row!.distributed) return false
  await connection.execute(`lock table ${table} in access exclusive mode; ${removal}`)
  return true
}

/** Last step of the migration's transaction. From its commit on, earlier statements are refused, and for a while later ones too. */
export async function setGuard(connection: Connection): Promise<void> {
  await connection.execute(`
    ${guardFunction(await instant(connection, earlierMaxMs))};
    create trigger ${name} before insert or update or delete on ${table} for each statement execute function ${name}()`)
}

/**
 * After the commit: refuses only statements that began before now, and removes the guard once those have ended. `transaction` must
 * keep other nodes from migrating meanwhile.
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
    // Another node may have applied the next migration and set its own guard.
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

/** By the database's clock. */
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
