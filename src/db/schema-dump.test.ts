import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { postgres15 } from '../../test/postgres-versions.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { openDatabase } from './database.ts'
import { startEmbeddedPostgres } from './embedded-postgres.ts'
import { migrate } from './migrate.ts'
import { dumpSchema } from './schema-dump.ts'

const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))

// One of everything, named so that the order in which things were made is not the alphabetical one.
const everything = `
  create schema other;
  create table other.zebra (id integer primary key);
  create type mood as enum ('sad', 'happy');
  create type pair as (first integer, second text);
  create domain amount as bigint default 0 not null check (value >= 0);
  create table yak (
    id bigint generated always as identity primary key,
    zebra_id integer references other.zebra (id),
    name text collate "C" not null default 'it''s',
    twice integer generated always as (zebra_id * 2) stored,
    number serial,
    amounts numeric(10, 2)[] not null,
    constraint yak_name_not_empty check (name <> '')
  ) with (fillfactor = 50);
  create unique index yak_lower_name on yak (lower(name)) where zebra_id > 3;
  create table event (id integer, at date) partition by range (at);
  create table event_2026 partition of event for values from ('2026-01-01') to ('2027-01-01');
  create function touch() returns trigger language plpgsql as $$ begin return new; end $$;
  create trigger touched before update on yak for each row when (old.name is distinct from new.name) execute function touch();
  create view long_names as select name, count(*) filter (where zebra_id = 1) as ones from yak where name in ('a', 'b') group by name;
  create view joined as select yak.id, (select max(zebra.id) from other.zebra where zebra.id < yak.id) as below from yak join other.zebra on zebra.id = yak.zebra_id;
  create materialized view names as select distinct name from yak;
  comment on table yak is 'hairy';
  comment on column yak.name is 'what it''s called';
  comment on constraint yak_name_not_empty on yak is 'of course';
  comment on index yak_lower_name is 'one of a name';
  comment on trigger touched on yak is 'does nothing';
  comment on view long_names is 'not so long';
  comment on materialized view names is 'once each';
  comment on function touch() is 'still nothing';
  comment on type mood is 'of the yak';
  comment on sequence yak_number_seq is 'counts'`

test('the schema dump is the same twice', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  assert.equal(await dumpSchema(database), await dumpSchema(database))
})

test('the schema dump is the same on the oldest and on the newest PostgreSQL', async (t) => {
  const [newest, oldest] = [await dumpOf(t, undefined), await dumpOf(t, await postgres15())]
  assert.equal(oldest, newest)
})

test('the schema dump shows every kind of thing that a migration can make', async (t) => {
  const { database, drop } = await testDatabase()
  atEnd(t, drop)
  await database.execute(everything)
  const dump = await dumpSchema(database)
  for (const line of [
    "create type mood as enum ('sad', 'happy');",
    'create domain amount as bigint default 0 not null constraint amount_check CHECK (VALUE >= 0);',
    'create table other.zebra (',
    '  id bigint generated always as identity not null,',
    "  name text collate \"C\" default 'it''s'::text not null,",
    '  twice integer generated always as ((zebra_id * 2)) stored,',
    '  constraint yak_zebra_id_fkey FOREIGN KEY (zebra_id) REFERENCES other.zebra(id),',
    ') with (fillfactor=50);',
    'CREATE UNIQUE INDEX yak_lower_name ON public.yak USING btree (lower(name)) WHERE (zebra_id > 3);',
    ') partition by RANGE (at);',
    "create table event_2026 partition of event FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');",
    "comment on column yak.name is 'what it''s called';",
    "comment on constraint yak_name_not_empty on yak is 'of course';",
    "comment on routine touch() is 'still nothing';",
    "comment on materialized view names is 'once each';",
    'create view joined as',
    'CREATE OR REPLACE FUNCTION public.touch()',
  ]) {
    assert.equal(dump.split('\n').includes(line), true, `${line}\nis missing in\n${dump}`)
  }
  assert.match(
    dump,
    /^CREATE TRIGGER touched BEFORE UPDATE ON yak FOR EACH ROW WHEN \(.*\) EXECUTE FUNCTION touch\(\);$/m,
  )
})

async function dumpOf(t: TestContext, packageRoot: string | undefined): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'penny-dump-'))
  const postgres = await startEmbeddedPostgres({ dataDir, packageRoot })
  atEnd(t, async () => {
    await postgres.stop()
    await rm(dataDir, { recursive: true, force: true })
  })
  const database = openDatabase({ url: postgres.url, poolMax: 1, applicationName: 'dump' })
  try {
    await migrate(database, migrations)
    await database.execute(everything)
    return await dumpSchema(database)
  } finally {
    await database.close()
  }
}
