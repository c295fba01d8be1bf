import type { Connection, Database } from './database.ts'

const header = '-- The schema after all migrations, each kind in alphabetical order. Generated: do not edit.'

/**
 * The schema of the database as readable SQL, for review and to prove that the committed copy is fresh. Written from
 * the catalogue, always in the same order, and the same on every PostgreSQL from 15 to 18.
 */
export function dumpSchema(database: Database): Promise<string> {
  return database.transaction(
    async (connection) => {
      // Names in this schema are written without it, whatever the server's own setting.
      await connection.query('set local search_path = public')
      const statements = [
        ...(await textsOf(connection, extensions)),
        ...(await textsOf(connection, types)),
        ...(await textsOf(connection, sequences)),
        ...(await dumpTables(connection)),
        ...(await dumpViews(connection)),
        ...(await textsOf(connection, functions)),
      ]
      return `${[header, ...statements].join('\n\n')}\n`
    },
    // One snapshot for all the statements: a migration that lands meanwhile is in it wholly or not at all.
    { isolation: 'repeatable read' },
  )
}

/** Runs a query that gives the `text` of one object a row. */
async function textsOf(connection: Connection, query: string): Promise<string[]> {
  const rows = await connection.query<{ text: string }>(query)
  return rows.map(({ text }) => text)
}

/** Leaves out what belongs to the server or came with an extension. */
function ours(namespace: string, catalogue: string, oid: string): string {
  return `${namespace}::regnamespace::text !~ '^(pg_|information_schema$)' and not exists (
    select from pg_depend where classid = '${catalogue}'::regclass and objid = ${oid} and deptype = 'e')`
}

/** The line that sets a comment, after the object it belongs to; null, and so nothing for `concat`, without one. */
function commentOn(target: string, description: string): string {
  return `E'\\n' || 'comment on ' || ${target} || ' is ' || quote_literal(${description}) || ';'`
}

const extensions = `
  select format('create extension %I;', extname) as text from pg_extension
  where extname <> 'plpgsql' order by extname collate "C"`

const enumDefinition = `format('create type %s as enum (%s);', name, (
  select string_agg(quote_literal(enumlabel), ', ' order by enumsortorder) from pg_enum where enumtypid = type.oid))`

const compositeDefinition = `format(E'create type %s as (\\n%s\\n);', name, (
  select string_agg(format('  %I %s', attname, format_type(atttypid, atttypmod)), E',\\n' order by attnum)
  from pg_attribute where attrelid = typrelid and attnum > 0 and not attisdropped))`

const domainDefinition = `format('create domain %s as %s;', name, concat_ws(' ',
  format_type(typbasetype, typtypmod), 'default ' || typdefault, case when typnotnull then 'not null' end, (
    select string_agg(format('constraint %I %s', conname, pg_get_constraintdef(oid, true)), ' ' order by conname collate "C")
    from pg_constraint where contypid = type.oid and contype = 'c')))`

const types = `
  select concat(
    case typtype when 'e' then ${enumDefinition} when 'c' then ${compositeDefinition} else ${domainDefinition} end,
    ${commentOn("'type ' || name", "obj_description(type.oid, 'pg_type')")}) as text
  from pg_type as type, format_type(type.oid, null) as name
  where (typtype in ('e', 'd') or exists (select from pg_class where oid = typrelid and relkind = 'c'))
    and ${ours('typnamespace', 'pg_type', 'type.oid')}
  order by name collate "C"`

// The sequence of an identity column (deptype 'i') is part of its table; that of a serial column is on its own.
const sequences = `
  select concat(
    format('create sequence %s as %s start %s increment %s minvalue %s maxvalue %s cache %s%s;', name,
      format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcache,
      case when seqcycle then ' cycle' end),
    ${commentOn("'sequence ' || name", "obj_description(seqrelid, 'pg_class')")}) as text
  from pg_sequence join pg_class on pg_class.oid = seqrelid, cast(seqrelid::regclass as text) as name
  where not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = seqrelid and deptype = 'i')
    and ${ours('relnamespace', 'pg_class', 'seqrelid')}
  order by name collate "C"`

const functions = `
  select concat(rtrim(pg_get_functiondef(oid), E'\\n'), ';',
    ${commentOn("'routine ' || name", "obj_description(oid, 'pg_proc')")}) as text
  from pg_proc, cast(oid::regprocedure as text) as name
  where prokind in ('f', 'p') and ${ours('pronamespace', 'pg_proc', 'oid')}
  order by name collate "C"`

type Table = {
  readonly oid: number
  readonly name: string
  readonly opening: string
  readonly body: boolean
  readonly closing: string
  readonly comment: string | null
}

const tables = `
  select pg_class.oid, name,
    'create' || case relpersistence when 'u' then ' unlogged' else '' end || ' table ' || name as opening,
    not relispartition as body,
    concat(
      (select format(' partition of %s %s', inhparent::regclass, pg_get_expr(relpartbound, pg_class.oid))
        from pg_inherits where inhrelid = pg_class.oid and relispartition),
      ' partition by ' || pg_get_partkeydef(pg_class.oid),
      ' with (' || array_to_string(reloptions, ', ') || ')') as closing,
    ${commentOn("'table ' || name", "obj_description(pg_class.oid, 'pg_class')")} as comment
  from pg_class, cast(pg_class.oid::regclass as text) as name
  where relkind in ('r', 'p') and ${ours('relnamespace', 'pg_class', 'pg_class.oid')}
  order by name collate "C"`

type Line = { readonly oid: number; readonly text: string; readonly comment: string | null }

const columns = `
  select attrelid as oid,
    concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
      (select 'collate ' || attcollation::regcollation::text from pg_type
        where oid = atttypid and typcollation <> attcollation),
      case
        when attgenerated = 's' then format('generated always as (%s) stored', pg_get_expr(adbin, adrelid))
        when attgenerated = 'v' then format('generated always as (%s) virtual', pg_get_expr(adbin, adrelid))
        else 'default ' || pg_get_expr(adbin, adrelid)
      end,
      case attidentity when 'a' then 'generated always as identity' when 'd' then 'generated by default as identity' end,
      case when attnotnull then 'not null' end) as text,
    ${commentOn("'column ' || attrelid::regclass || '.' || quote_ident(attname)", 'col_description(attrelid, attnum)')}
      as comment
  from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
  where attrelid = any($1) and attnum > 0 and not attisdropped order by attrelid, attnum`

// Since 18 NOT NULL is a constraint too ('n'); before, it is only known to the column, where it is written for all.
const constraints = `
  select conrelid as oid, format('constraint %I %s', conname, pg_get_constraintdef(oid, true)) as text,
    ${commentOn("'constraint ' || quote_ident(conname) || ' on ' || conrelid::regclass", "obj_description(oid, 'pg_constraint')")}
      as comment
  from pg_constraint where conrelid = any($1) and contype in ('p', 'u', 'f', 'c', 'x')
  order by conrelid, position(contype in 'puxfc'), conname collate "C"`

const indexes = `
  select indrelid as oid, pg_get_indexdef(indexrelid) || ';' as text,
    ${commentOn("'index ' || indexrelid::regclass", "obj_description(indexrelid, 'pg_class')")} as comment
  from pg_index
  where indrelid = any($1) and not exists (
    select from pg_constraint where conindid = indexrelid and contype in ('p', 'u', 'x'))
  order by indrelid, indexrelid::regclass::text collate "C"`

const triggers = `
  select tgrelid as oid, pg_get_triggerdef(oid, true) || ';' || case tgenabled when 'D' then ' -- disabled' else '' end as text,
    ${commentOn("'trigger ' || quote_ident(tgname) || ' on ' || tgrelid::regclass", "obj_description(oid, 'pg_trigger')")} as comment
  from pg_trigger where tgrelid = any($1) and not tgisinternal
  order by tgrelid, tgname collate "C"`

async function dumpTables(connection: Connection): Promise<string[]> {
  const found = await connection.query<Table>(tables)
  const oids = found.map(({ oid }) => oid)
  const linesOf = async (query: string) => Map.groupBy(await connection.query<Line>(query, [oids]), ({ oid }) => oid)
  const [columnsOf, constraintsOf, indexesOf, triggersOf] = [
    await linesOf(columns),
    await linesOf(constraints),
    await linesOf(indexes),
    await linesOf(triggers),
  ]
  return found.map(({ oid, opening, body, closing, comment }) => {
    const inside = [...(columnsOf.get(oid) ?? []), ...(constraintsOf.get(oid) ?? [])]
    const after = [...(indexesOf.get(oid) ?? []), ...(triggersOf.get(oid) ?? [])]
    const list = body ? ` (\n${inside.map(({ text }) => `  ${text}`).join(',\n')}\n)` : ''
    const comments = [{ comment }, ...inside, ...after].map((line) => line.comment ?? '')
    return `${opening}${list}${closing};${after.map(({ text }) => `\n${text}`).join('')}${comments.join('')}`
  })
}

type View = { readonly opening: string; readonly query: string; readonly comment: string | null }

const views = `
  select 'create ' || kind || ' ' || name as opening,
    pg_get_viewdef(pg_class.oid) as query,
    ${commentOn("kind || ' ' || name", "obj_description(pg_class.oid, 'pg_class')")} as comment
  from pg_class, cast(pg_class.oid::regclass as text) as name,
    cast(case relkind when 'm' then 'materialized view' else 'view' end as text) as kind
  where relkind in ('v', 'm') and ${ours('relnamespace', 'pg_class', 'pg_class.oid')}
  order by name collate "C"`

/**
 * Since 16 a view's own text leaves out table names where there is only one table; 15 writes them. The body of an SQL
 * function is written alike by both, so each view passes through one, a temporary one.
 */
async function dumpViews(connection: Connection): Promise<string[]> {
  const texts: string[] = []
  for (const { opening, query, comment } of await connection.query<View>(views)) {
    await connection.query(`create function pg_temp.dumped() returns setof record begin atomic ${query} end`)
    const [row] = await connection.query<{ body: string }>(
      "select pg_get_function_sqlbody('pg_temp.dumped'::regproc) as body",
    )
    await connection.query('drop function pg_temp.dumped')
    const body = row!.body
      .replace(/^BEGIN ATOMIC\n/, '')
      .replace(/\nEND$/, '')
      .replace(/^ /gm, '')
    texts.push(`${opening} as\n${body}${comment ?? ''}`)
  }
  return texts
}
