import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'

// What lets the same functions run on one PostgreSQL and on Citus, where each call goes to the worker that has its partition. Read
// from the SQL itself: one PostgreSQL runs what breaks these rules without complaint, and Citus complains only about paths that are run.

const folder = new URL('../../migrations/functions/', import.meta.url)
const baseline = readFileSync(new URL('../../migrations/0001_baseline.sql', import.meta.url), 'utf8')

/** Tables with a partition in their primary key, and the view over two of them. */
const partitioned = [
  ...[...baseline.matchAll(/^create table (\w+) \(\n {2}partition /gm)].map((match) => match[1]!),
  'request_log',
]

type SqlFunction = {
  readonly name: string
  readonly created: string | undefined
  readonly firstParameter: string
  readonly language: string | undefined
  readonly lines: number
  /** Without comments. */
  readonly text: string
}

const functions: readonly SqlFunction[] = readdirSync(folder).map((file) => {
  const source = readFileSync(new URL(file, folder), 'utf8')
  const text = source.replaceAll(/--.*$/gm, '')
  return {
    name: file.replace(/\.sql$/, ''),
    created: /^create function (\w+)/m.exec(text)?.[1],
    firstParameter: /^create function \w+\s*\(\s*(\w+ \w+)/m.exec(text)?.[1] ?? '',
    language: /\blanguage (\w+)/.exec(text)?.[1],
    lines: source.trimEnd().split('\n').length,
    text,
  }
})

/** Exceptions, each with its reason. A name that is no longer an exception fails the test too. */
const linesMaxOf: Readonly<Record<string, number>> = {
  // One batch of holds is read, decided and written; each part uses what the one before computed.
  place_holds: 95,
}
const makesTables = 'create_request_months'
const withoutAccountLock: Readonly<Record<string, string>> = {
  lock_accounts: 'it is the lock',
  count_ends: 'a part of end_requests, which has locked',
  spare_cancels: 'a part of end_requests, which has locked',
  book_withdrawal: 'a part of advance_transfers, which has locked',
  book_x402: 'a part of advance_transfers, which has locked',
}
const beforeTheLock: Readonly<Record<string, RegExp>> = {
  // Refuses a batch that names a request twice before anything is locked.
  end_requests: /if cardinality\(v_ids\).*?end if;/s,
  // Nearly every retry key has one attempt, and there is nothing to refund.
  refund_attempt: /if not exists .*?end if;/s,
  // Nearly always nobody listens, and there is nothing to lock for.
  write_events: /if not exists .*?end if;/s,
}

const ledgerFunctions = functions.filter(
  ({ name, text }) => name !== makesTables && partitioned.some((table) => touches(text, table)),
)

function touches(text: string, table: string): boolean {
  return new RegExp(`\\b(from|join|update|insert into|delete from|using)\\s+${table}\\b`).test(text)
}

/** Statements of a function that change rows. */
function changesOf(text: string): readonly string[] {
  return text.split(';').flatMap((statement) => {
    const change =
      /\b(update\s+\w+\s+(?:\w+\s+)?set|update\s+\w+\s+\w+\s*$|delete from|on conflict[^;]*do update)\b[\s\S]*/.exec(
        statement,
      )
    return change === null ? [] : [change[0]]
  })
}

test('each file creates the one function that it is named after, of a readable length', () => {
  assert.ok(functions.length > 20)
  assert.deepEqual(
    functions.filter(({ name, created, text }) => created !== name || text.match(/^create /gm)?.length !== 1),
    [],
  )
  const long = functions.filter(({ name, lines }) => lines > (linesMaxOf[name] ?? 90)).map(({ name }) => name)
  assert.deepEqual(long, [])
  for (const name of Object.keys(linesMaxOf)) assert.ok(functions.find((one) => one.name === name)!.lines > 90, name)
})

test('functions that touch the tables of the ledger are PL/pgSQL, take the partition first and name it in the statement', () => {
  assert.ok(ledgerFunctions.length > 15)
  const wrong = ledgerFunctions.filter(
    ({ firstParameter, language, text }) =>
      firstParameter !== 'p_partition smallint' ||
      language !== 'plpgsql' ||
      !/partition = (coalesce\()?p_partition|\(p_partition,|select p_partition,/.test(text),
  )
  assert.deepEqual(
    wrong.map(({ name }) => name),
    [],
  )
})

// Such a list names the columns of a composite type again, by position: a column added to the type would shift all that follow.
test('no function renames the columns of a composite type by a list, and none loses events to an unnamed error', () => {
  const byPosition =
    /\bwith ordinality\s+as \w+ \([^),]*,[^),]*,|\brows from \([^;]*?\)\)?\s+(with ordinality\s+)?as \w+ \(/
  const wrong = functions.filter(({ text }) => byPosition.test(text) || /\bwhen others\b/.test(text))
  assert.deepEqual(
    wrong.map(({ name }) => name),
    [],
  )
})

/** The transfer machine replaces it. */
const rewritten: Readonly<Record<string, string>> = { advance_payments: 'reads the time of an entry' }

/** An interval added to an instant is a stable function too: it depends on the time zone. */
const stableInside = /\b(coalesce\([^()]*|case\b(?:(?!\bend\b)[\s\S])*)(\b(now|statement_timestamp)\(|\binterval ')/

// Citus refuses them there: the shards would not agree. The instant is computed once and handed on.
test('no statement that changes rows reads a clock or a random number, or computes an instant inside CASE or COALESCE', () => {
  const volatile = /\b(clock_timestamp|now|statement_timestamp|timeofday|random|nextval|gen_random_uuid)\(/
  const wrong = functions.filter(({ text }) =>
    changesOf(text).some((change) => volatile.test(change) || stableInside.test(change)),
  )
  assert.deepEqual(
    wrong.map(({ name }) => name),
    [],
  )
})

// A function runs on the worker that has its partition; a statement of it that calls another function that reads a table would be a query
// over all workers from there, which Citus refuses. The other function is called first, and its result handed on.
test('no statement that changes rows calls a function that reads a table', () => {
  const readers = functions.filter(({ text }) =>
    /\b(from|join)\s+(accounts|api_keys|holds|requests|payments|adjustments|ledger_state)\b/.test(text),
  )
  const calls = new RegExp(`\\b(${readers.map(({ name }) => name).join('|')})\\(`)
  const wrong = functions.filter(
    ({ name, text }) => !(name in rewritten) && changesOf(text).some((change) => calls.test(change)),
  )
  assert.deepEqual(
    wrong.map(({ name }) => name),
    [],
  )
})

// A lock that is not the first statement is taken after something was read that it should have protected; and on Citus the write
// in lock_accounts keeps the shard from being moved.
test('every function that writes accounts begins with lock_accounts', () => {
  const writers = functions.filter(({ text }) => /\b(update|insert into|delete from)\s+accounts\b/.test(text))
  assert.ok(writers.length > 8)
  const wrong = writers
    .filter(({ name }) => !(name in withoutAccountLock))
    .filter(({ name, text }) => {
      const body = text.slice(text.search(/^begin$/m) + 'begin'.length).replace(beforeTheLock[name] ?? /^$/, '')
      return !/^\s*perform lock_accounts\(p_partition,/.test(body)
    })
  assert.deepEqual(
    wrong.map(({ name }) => name),
    [],
  )
  for (const name of Object.keys(withoutAccountLock))
    assert.ok(
      writers.some((writer) => writer.name === name),
      name,
    )
})

// The same rules for the statements in TypeScript. They are read from the source: every text that names a table of the ledger counts,
// also a part of a statement, so that none is left out by the way it is run.

type Statement = { readonly file: string; readonly text: string }

const source = new URL('../../src/', import.meta.url)
const tableNames = [...baseline.matchAll(/^create table (\w+) /gm)].map((match) => match[1]!)

const sourceFiles = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter(
  (file) => file.endsWith('.ts') && !file.endsWith('.test.ts'),
)
const statements: readonly Statement[] = sourceFiles.flatMap((file) =>
  textsOf(readCode(file))
    .filter((text) => tableNames.some((table) => touches(text, table)))
    .map((text) => ({ file, text: text.replaceAll(/--.*$/gm, '') })),
)

/** The tests of the rooms that run on a cluster too (test/run.ts). */
const clusterTests = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((file) =>
  /^(ledger|identity|jobs|alerts|settlement)\/.*\.test\.ts$|^api\/webhooks\.test\.ts$/.test(file),
)

/** Without comments. */
function readCode(file: string): string {
  return readFileSync(new URL(file, source), 'utf8').replaceAll(/^\s*(\/\/|\/?\*).*$/gm, '')
}

/** The texts of a file, with the constants of the same file put in. */
function textsOf(code: string): readonly string[] {
  const literal = /`(?:[^`\\]|\\.)*`|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g
  const constants = new Map(
    [...code.matchAll(/const (\w+) =\s*(`(?:[^`\\]|\\.)*`|'(?:[^'\\\n]|\\.)*')/g)].map((match) => [
      match[1]!,
      match[2]!,
    ]),
  )
  return [...code.matchAll(literal)].map(([text]) =>
    text.replaceAll(/\$\{(\w+)\}/g, (whole, name: string) => constants.get(name)?.slice(1, -1) ?? whole),
  )
}

const isChange = (text: string) => /\b(update\s+\w+\s+(\w+\s+)?set|delete from|insert into)\b/.test(text)
const touched = (text: string) => partitioned.filter((table) => touches(text, table))

/**
 * Reads over all partitions, by file: how many, and why. On Citus each asks all workers; none decides about money of an account
 * without its lock. One more than is listed fails the test, and one less too.
 */
const readsOfAllPartitions: Readonly<Record<string, readonly [count: number, reason: string]>> = {
  'alerts/emails.ts': [1, 'accounts of any partition that use one e-mail address'],
  'alerts/mailer.ts': [1, 'job: mail that is due'],
  'db/account-log.ts': [1, 'job: partitions that have a log'],
  'identity/api-keys.ts': [3, 'by the id of a key, which tells no partition; what follows names it'],
  'identity/members.ts': [4, 'accounts of a person, which may be in any partition'],
  'identity/sessions.ts': [7, 'joined to the table of sessions, which names the partition; accounts of a person'],
  'identity/revoke-access.ts': [1, 'whether a person is a member of another account'],
  'ledger/accounts.ts': [3, 'by name, the list for operators, and the list of partitions itself'],
  'ledger/adjustments.ts': [2, 'the list for operators; one whose condition is in another file and names it'],
  'ledger/audit.ts': [15, 'the audit of all accounts; joins stay within a partition'],
  'ledger/events.ts': [1, 'job: partitions with accounts that somebody listens to'],
  'ledger/demo-account.ts': [1, 'the sandbox looks for its own account'],
  'ledger/deposit-addresses.ts': [2, 'jobs: all addresses, and accounts that want one'],
  'ledger/deposits.ts': [2, 'jobs: what each address may have, and the first block'],
  'ledger/ledger-numbers.ts': [5, 'metrics'],
  'ledger/liabilities.ts': [1, 'job: what is owed to all accounts'],
  'ledger/lost-transfers.ts': [2, 'a command for operators: which transfers of the gateway are known'],
  'ledger/epoch.ts': [1, 'whether any payment is under way, at the start'],
  'ledger/nodes.ts': [4, 'jobs: holds of nodes that died, and holds of this node that it does not serve'],
  'ledger/operator-accounts.ts': [3, 'pages for operators'],
  'ledger/operator-health.ts': [4, 'pages for operators'],
  'ledger/operator-revenue.ts': [2, 'pages for operators'],
  'ledger/payments.ts': [7, 'jobs: what is due and what is under way; what follows names the partition and locks'],
  'ledger/payouts.ts': [3, 'what the seller owes to all accounts'],
  'ledger/replays.ts': [2, 'what a node is asked for, and a sum for solvency'],
  'ledger/request-log.ts': [1, 'a part of a condition; the statement names the partition'],
  'ledger/seal-month.ts': [2, 'a command for operators: which requests are open or can be retried'],
  'ledger/sweeps.ts': [3, 'jobs: what is to be swept and what is under way'],
  // With the partition as a value PostgreSQL would read the primary key backwards past the requests of all other accounts.
  'ledger/usage.ts': [4, 'charts of one account, by the index on the account'],
  'ledger/transfers.ts': [2, 'jobs: transfers that are due, and by the ids of the gateway'],
  'ledger/withdrawals.ts': [3, 'metrics; one whose condition is in another file and names it'],
  'ledger/watched-accounts.ts': [
    3,
    'one look for all accounts with a live view; job: watches that are over; whether any live view is of an account with an address',
  ],
  'ledger/wallet-accounts.ts': [1, 'by the address of a wallet, which tells no partition'],
  'ledger/x402-payments.ts': [1, 'job: payments whose outcome is open'],
  'settlement/published-terms.ts': [1, 'whether any payment to another seller is open, at the start'],
  'settlement/solvency.ts': [2, 'compares all accounts with the chain'],
  'webhooks/deliverer.ts': [1, 'job: endpoints for which there is something to send'],
}

test('every write in TypeScript names its partition as a value', () => {
  const writes = statements.filter(({ text }) => isChange(text) && partitioned.some((table) => writesTo(text, table)))
  assert.ok(writes.length > 30)
  assert.deepEqual(
    writes.filter(({ text }) => !/partition = \$1\b|\(partition, |\bselect \$1, |values \(\$1, /.test(text)),
    [],
  )
})

function writesTo(text: string, table: string): boolean {
  return new RegExp(`\\b(update|insert into|delete from)\\s+${table}\\b`).test(text)
}

test('reads in TypeScript name their partition as a value, but for those that are listed', () => {
  const found = statements.filter(
    ({ text }) =>
      !isChange(text) && touched(text).length > 0 && !/partition = (coalesce\()?(\$\d|\$\{partition\})/.test(text),
  )
  const counts = Object.entries(Object.groupBy(found, ({ file }) => file)).map(
    ([file, of]) => [file, of!.length] as const,
  )
  assert.deepEqual(
    Object.fromEntries(counts),
    Object.fromEntries(Object.entries(readsOfAllPartitions).map(([file, [count]]) => [file, count])),
  )
})

test('tables of the ledger are joined within a partition', () => {
  const wrong = statements.filter(({ text }) => {
    const tables = [...text.matchAll(new RegExp(`\\b(?:from|join|using)\\s+(?:${partitioned.join('|')})\\b`, 'g'))]
      .length
    const named = [...text.matchAll(/\bpartition\b/g)].length
    return tables > 1 && named < tables - 1 && !/\bunion\b|::int as count|::float8/.test(text)
  })
  assert.deepEqual(wrong, [])
})

test('no write in TypeScript has a volatile function, or a stable one inside CASE or COALESCE', () => {
  const volatile = /\b(clock_timestamp|timeofday|random|nextval|gen_random_uuid)\(/
  const wrong = statements
    .flatMap(({ file, text }) => changesOf(text).map((change) => ({ file, change })))
    .filter(({ change }) => volatile.test(change) || stableInside.test(change))
  assert.deepEqual(wrong, [])
})

// Citus collects what such a subquery finds and hands it on as a table, which needs a column.
test('a subquery over all partitions selects a column', () => {
  const wrong = statements.filter(({ text }) =>
    [...text.matchAll(/\(select from (\w+)([^()]*)/g)].some(
      ([, table, rest]) => partitioned.includes(table!) && !/\bpartition =/.test(rest!),
    ),
  )
  assert.deepEqual(wrong, [])
})

// Citus refuses a stable function of a column in an update: `at - interval` depends on the time zone of the session. Tests that run there
// move an instant by `earlier`.
test('no update, of a test either, computes an instant from a column', () => {
  const moved = /\bset [^;]*?\b(\w+) = (\w+\.)?\1 [-+] (interval|\$\d+ \* interval)/
  const files = [...statements.map(({ file }) => file), ...clusterTests]
  const wrong = [...new Set(files)].filter((file) =>
    textsOf(readCode(file)).some((text) => moved.test(text) && onShards(text)),
  )
  assert.deepEqual(wrong, [])
})

const onShards = (text: string) => /\$\{table\}/.test(text) || partitioned.some((table) => writesTo(text, table))

/** Each with its reason: it does not decide anything. */
const otherLocks: Readonly<Record<string, string>> = {
  'ledger/holds.ts': 'finds accounts that nobody has locked; the function that follows locks them again, after a write',
}

test('accounts are locked in TypeScript by lock_accounts alone', () => {
  const locking = statements
    .filter(({ text }) => /\bfor (no key update|update|share|key share)\b/.test(text) && touched(text).length > 0)
    .map(({ file }) => file)
  assert.deepEqual(locking, Object.keys(otherLocks))
})

/** Of tables that are whole on every worker, or of a database without workers. */
const tablesByVariable = [
  'db/copy-rows.ts',
  'identity/established.ts',
  'identity/move-members.ts',
  'identity/revoke-access.ts',
]

// A table whose name is put together escapes the rules above.
test('no statement in TypeScript names a table of the ledger by a variable', () => {
  const named = sourceFiles.filter((file) =>
    textsOf(readCode(file)).some(
      (text) => /^.\s*(select|with|insert|update|delete)\b/.test(text) && /\b(from|join|update|into) \$\{/.test(text),
    ),
  )
  assert.deepEqual(named.sort(), tablesByVariable)
})
