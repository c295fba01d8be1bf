import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { testDatabase } from './support/postgres.ts'

const script = readFileSync(new URL('../deploy/citus.sql', import.meta.url), 'utf8')

// Citus itself cannot be had here. Its functions are stood in for by ones that check what they are told against the
// catalogue: that the table or function exists, and that the distribution column leads the primary key.
const standIns = `
  create table told (kind text, name text);
  create function create_reference_table(p_table regclass) returns void language sql as
    $$ insert into told values ('reference', p_table::text) $$;
  create function create_distributed_table(p_table regclass, p_column text, colocate_with text default 'default') returns void
  language plpgsql as $$ begin
    if not exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
                    where i.indrelid = p_table and i.indisprimary and a.attname = p_column) then
      raise exception '% does not lead the primary key of %', p_column, p_table;
    end if;
    insert into told values ('distributed', p_table::text);
  end $$;
  create function create_distributed_function(p_function regprocedure, p_argument text default null, colocate_with text default 'default')
  returns void language plpgsql as $$ begin
    if p_argument is not null and (select proargnames[1] from pg_proc where oid = p_function) <> p_argument then
      raise exception '% is not the first argument of %', p_argument, p_function;
    end if;
    insert into told values ('function', (select proname from pg_proc where oid = p_function));
  end $$;`

/** Of the coordinator alone: what was migrated, leases (their table stands whole everywhere) and the making of tables. */
const local = new Set(['migrations', 'function_versions', 'renew_lease', 'create_request_months'])

test('deploy/citus.sql applies to the schema and leaves out no table and no function of the ledger', async () => {
  const { database, drop } = await testDatabase()
  const names = async (text: string) => (await database.query<{ name: string }>(text)).map(({ name }) => name)
  // Partitions of a table go with it.
  const tables = await names(
    "select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1",
  )
  const functions = await names(
    "select proname as name from pg_proc where pronamespace = 'public'::regnamespace order by 1",
  )
  try {
    await database.execute(standIns)
    await database.execute(script.replace('create extension if not exists citus;', ''))
    assert.deepEqual(
      await names("select name from told where kind <> 'function' order by 1"),
      tables.filter((name) => !local.has(name)),
    )
    assert.deepEqual(
      await names("select name from told where kind = 'function' order by 1"),
      functions.filter((name) => !local.has(name)),
    )
  } finally {
    await drop()
  }
})
