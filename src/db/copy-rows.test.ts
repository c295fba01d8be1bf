import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { copyRows } from './copy-rows.ts'
import type { Database } from './database.ts'

// Foreign keys against the order of the names, a partition per month, a trigger that changes rows, what migrations write, and values
// that are easily changed on the way.
const migration = `
  create table z_owners (id int primary key);
  create table a_things (
    id       bigint generated always as identity primary key,
    owner    int not null references z_owners,
    parent   bigint references a_things,
    words    text,
    number   double precision,
    bytes    bytea,
    at       timestamptz,
    list     text[],
    json     jsonb,
    is_large boolean generated always as (number > 1) stored
  );
  create table months (month int, what text, primary key (month, what)) partition by range (month);
  create table months_other partition of months default;
  create table state (single boolean primary key default true, version int not null);
  insert into state (version) values (1);
  create function shout() returns trigger language plpgsql as $$ begin new.words := upper(new.words); return new; end $$;
  create trigger shout before insert on a_things for each row execute function shout();`

const content = `
  create table months_7 partition of months for values from (7) to (8);
  insert into months values (7, 'July'), (9, 'other');
  update state set version = 2;
  insert into z_owners values (1), (2);
  alter table a_things disable trigger user;
  insert into a_things (owner, parent, words, number, bytes, at, list, json) values
    (1, null, E'tab\\t, line\\n, \\\\N, backslash \\\\, quote '' and 💸', 0.1 + 0.2, '\\x00ff', '2026-11-17 21:00:00.123456+02', '{a,NULL,"b,c"}', '{"a": [1, null]}'),
    (2, 1, null, 'NaN', null, 'infinity', '{}', null),
    (2, 2, '', 1e300, '', null, null, '""');
  alter table a_things enable trigger user;`

const read = (database: Database) =>
  database.query(`
    select (select json_agg(t::text order by id) from a_things t) as things, (select json_agg(m order by month) from months_7 m) as july,
           (select json_agg(m) from months_other m) as other, (select version from state) as version`)

async function prepare(t: Parameters<typeof atEnd>[0]) {
  const migrations = mkdtempSync(join(tmpdir(), 'penny-copy-'))
  atEnd(t, () => rmSync(migrations, { recursive: true, force: true }))
  writeFileSync(join(migrations, '0001_things.sql'), migration)
  const [source, target] = [await testDatabase({ migrations }), await testDatabase({ migrations })]
  atEnd(t, () => source.drop())
  atEnd(t, () => target.drop())
  await source.database.execute(content)
  const options = { schemas: ['public'], except: ['migrations'], onProgress: () => {} }
  return { source, target, copy: () => copyRows({ sourceUrl: source.url, targetUrl: target.url, ...options }) }
}

test('a copy has every row unchanged, in its partition, and its sequences continue', async (t) => {
  const { source, target, copy } = await prepare(t)
  assert.deepEqual(await copy(), { tables: 4, rows: 8n })
  assert.deepEqual(await read(target.database), await read(source.database))
  const [next] = await target.database.query<{ id: bigint; words: string }>(
    `insert into a_things (owner, words) values (1, 'loud') returning id, words`,
  )
  assert.deepEqual(next, { id: 4n, words: 'LOUD' })
  // A second copy replaces the first.
  assert.deepEqual(await copy(), { tables: 4, rows: 8n })
  assert.deepEqual(await read(target.database), await read(source.database))
})

test('a copy that fails, or differs from the original, leaves nothing behind', async (t) => {
  const { target, copy } = await prepare(t)
  const before = `select (select count(*) from z_owners) as owners, (select version from state) as version`
  await target.database.execute(`alter table a_things add constraint small check (number < 2)`)
  await assert.rejects(copy(), /violates check constraint "small"/)
  assert.deepEqual(await target.database.query(before), [{ owners: 0n, version: 1 }])
  // A column that rounds.
  await target.database.execute(
    `alter table a_things drop constraint small; alter table a_things alter at type timestamptz(0)`,
  )
  await assert.rejects(
    copy(),
    /^.*The copy of a_things differs from the original: the checksums differ\. Nothing was copied\.$/,
  )
  assert.deepEqual(await target.database.query(before), [{ owners: 0n, version: 1 }])
})
