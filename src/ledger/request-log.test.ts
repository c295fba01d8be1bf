import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { exampleCount } from '../../test/support/examples.ts'
import { partitions } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { createKey } from '../identity/api-keys.ts'
import { fromAtomic } from '../money/usdc.ts'
import { createAccount } from './accounts.ts'
import { createRequestId, type RequestId } from './request-id.ts'
import { listRequests, type RequestFilter, readAllRequests, sumRequests } from './request-log.ts'
import { type Granularity, readUnsuccessfulCharges, readUsage } from './usage.ts'

// A history of two accounts with everything in it, read in every way and compared with the rows themselves.

type Row = {
  readonly id: RequestId
  readonly keyId: string
  readonly status: 'succeeded' | 'failed' | 'cancelled' | 'refused' | 'held'
  readonly model: string
  readonly stream: boolean
  readonly charged: bigint
  readonly searchCalls: number
  readonly errorCode: string | null
  readonly createdAt: Date
}

const statuses = ['succeeded', 'succeeded', 'succeeded', 'failed', 'cancelled', 'refused', 'held'] as const
const models = ['m', 'n', 'o']
const rowCount = 240
const startMs = Date.UTC(2026, 0, 1, 10, 17)
const stepMs = 97_000

let ledger: TestDatabase
let owner: { readonly partition: number; readonly accountId: string }
let keyIds: readonly string[]
let rows: readonly Row[]

before(async () => {
  ledger = await testDatabase()
  ;({ owner, keyIds, rows } = await makeHistory())
  await makeHistory()
  await ledger.database.query(`
    insert into usage_hours
    select partition, account_id, date_trunc('hour', created_at, 'UTC'), key_id, model,
           count(*) filter (where status = 'succeeded'), count(*) filter (where status = 'failed'),
           count(*) filter (where status = 'cancelled'), count(*) filter (where status = 'refused'), sum(quote),
           sum(charged), sum(search_cost), sum(search_calls), 0, 0, 0, 0, 0, 0, 0, 0
      from requests group by 1, 2, 3, 4, 5`)
})
after(() => ledger.drop())

async function makeHistory() {
  const { database } = ledger
  const account = await createAccount(database, 'history', partitions)
  const made = { partition: account.partition, accountId: account.id }
  const keys: string[] = []
  for (const name of ['a', 'b', 'c']) keys.push((await createKey(database, { ...made, name })).id)
  const history: Row[] = []
  for (let index = 0; index < rowCount; index += 1) {
    const atMs = startMs + index * stepMs
    const status = statuses[(index * 5) % statuses.length]!
    const paid = status === 'succeeded' || status === 'cancelled'
    history.push({
      id: createRequestId(made.partition, atMs),
      keyId: keys[index % 7 === 0 ? 2 : index % 2]!,
      status,
      model: models[index % 3]!,
      stream: index % 4 === 0,
      charged: paid ? BigInt(1 + ((index * 37) % 500)) : 0n,
      searchCalls: paid && index % 9 === 0 ? 1 : 0,
      errorCode: status === 'failed' ? 'upstream_error' : status === 'refused' ? 'invalid_value' : null,
      // A body takes a while to arrive: the row is younger than its id.
      createdAt: new Date(atMs + (index % 5) * 700),
    })
  }
  for (const [index, row] of history.entries()) {
    const common = [
      made.partition,
      row.id,
      made.accountId,
      row.keyId,
      randomUUID(),
      row.model,
      row.stream,
      row.createdAt,
    ]
    if (row.status === 'held') await database.query(insertHold, common)
    else
      await database.query(insertRequest, [
        ...common,
        row.status,
        row.status === 'refused' ? null : index,
        row.charged,
        row.searchCalls,
        row.errorCode,
      ])
  }
  return { owner: made, keyIds: keys, rows: history }
}

const insertHold = `
  insert into holds (partition, id, account_id, key_id, node, model, stream, created_at, max_tokens, price_version, key_window, quote,
                     from_credit, authorized)
  values ($1, $2, $3, $4, $5, $6, $7, $8, 1, 'none', '-infinity', 600, 600, 0)`

const insertRequest = `
  insert into requests (partition, id, account_id, key_id, node, model, stream, created_at, ended_at, status, entry, quote, from_credit,
                        charged, search_calls, error_code)
  values ($1, $2, $3, $4, $5, $6, $7, $8::timestamptz, $8::timestamptz, $9, $10, 600, 600, $11, $12, $13)`

function fits(row: Row, filter: RequestFilter): boolean {
  return (
    (filter.statuses?.includes(row.status) ?? true) &&
    (filter.errorCodes?.includes(row.errorCode ?? '') ?? true) &&
    (filter.models?.includes(row.model) ?? true) &&
    (filter.keyIds?.includes(row.keyId) ?? true) &&
    (filter.hasSearch === undefined || filter.hasSearch === row.searchCalls > 0) &&
    (filter.stream === undefined || filter.stream === row.stream) &&
    (filter.chargedMin === undefined || row.charged >= filter.chargedMin) &&
    (filter.from === undefined || row.createdAt >= filter.from) &&
    (filter.to === undefined || row.createdAt < filter.to)
  )
}

const maybe = <Value>(arbitrary: fc.Arbitrary<Value>) => fc.option(arbitrary, { nil: undefined, freq: 2 })
const instant = fc
  .integer({ min: -3_600_000, max: rowCount * stepMs + 3_600_000 })
  .map((offsetMs) => new Date(startMs + offsetMs))

const filters: fc.Arbitrary<RequestFilter> = fc
  .record({
    statuses: maybe(
      fc.uniqueArray(fc.constantFrom('succeeded', 'failed', 'cancelled', 'refused', 'held'), { minLength: 1 }),
    ),
    errorCodes: maybe(
      fc.uniqueArray(fc.constantFrom('upstream_error', 'invalid_value', 'superseded'), { minLength: 1 }),
    ),
    models: maybe(fc.uniqueArray(fc.constantFrom(...models, 'never'), { minLength: 1 })),
    keys: maybe(fc.uniqueArray(fc.constantFrom(0, 1, 2), { minLength: 1 })),
    hasSearch: maybe(fc.boolean()),
    stream: maybe(fc.boolean()),
    chargedMin: maybe(fc.integer({ min: 0, max: 600 }).map((units) => fromAtomic(BigInt(units)))),
    from: maybe(instant),
    to: maybe(instant),
  })
  .map(({ keys, ...filter }) => ({ ...filter, keyIds: keys?.map((index) => keyIds[index]!) }))

test('the pages of any filter have exactly its rows, each once, newest first, even if a page may read few rows', async () => {
  const sizes = fc.record({ limit: fc.integer({ min: 1, max: 60 }), lookedAtMax: fc.integer({ min: 1, max: 300 }) })
  await fc.assert(
    fc.asyncProperty(filters, sizes, async (filter, size) => {
      const found: string[] = []
      let below: RequestId | undefined
      do {
        const page = await listRequests(ledger.database, owner, filter, { ...size, below })
        assert.ok(page.rows.length <= size.limit)
        found.push(...page.rows.map(({ id }) => id))
        below = page.next
      } while (below !== undefined)
      const expected = rows.filter((row) => fits(row, filter)).map(({ id }) => id)
      assert.deepEqual(found, expected.reverse())
    }),
    { numRuns: exampleCount('LOG_RUNS', { short: 15, full: 60 }) },
  )
})

test('totals and file are the sums of the rows that fit, to the atomic unit', async () => {
  await fc.assert(
    fc.asyncProperty(filters, async (filter) => {
      const expected = rows.filter((row) => fits(row, filter))
      const charged = expected.reduce((sum, row) => sum + row.charged, 0n)
      const totals = await sumRequests(ledger.database, owner, filter)
      const refused = expected.filter(({ status }) => status === 'refused').length
      assert.deepEqual(
        [totals.requests, totals.refused, totals.charged, totals.complete],
        [expected.length - refused, refused, charged, true],
      )
      let exported = 0n
      for await (const page of readAllRequests(ledger.database, owner, filter))
        for (const row of page) exported += row.charged
      assert.equal(exported, charged)
    }),
    { numRuns: exampleCount('LOG_RUNS', { short: 15, full: 60 }) },
  )
})

test('charts have the same sums, in minutes, hours and days, by model and by key', async () => {
  const hourMs = 3_600_000
  const dayMs = 24 * hourMs
  const spans: [Granularity, number, number][] = [
    ['minute', Date.UTC(2026, 0, 1, 11), Date.UTC(2026, 0, 1, 14)],
    ['hour', Date.UTC(2026, 0, 1, 11), Date.UTC(2026, 0, 1, 15)],
    ['day', Date.UTC(2026, 0, 1), Date.UTC(2026, 0, 1) + dayMs],
  ]
  for (const [granularity, fromMs, toMs] of spans) {
    const question = { from: new Date(fromMs), to: new Date(toMs), granularity }
    const ended = rows.filter((row) => fits(row, question) && row.status !== 'held')
    for (const group of ['none', 'model', 'key'] as const) {
      const steps = await readUsage(ledger.database, owner, question, group)
      const sum = steps.reduce((total, { measures }) => total + measures.charged, 0n)
      const counted = steps.reduce((total, { measures }) => total + measures.succeeded + measures.failed, 0)
      assert.equal(
        sum,
        ended.reduce((total, row) => total + row.charged, 0n),
      )
      assert.equal(counted, ended.filter(({ status }) => status === 'succeeded' || status === 'failed').length)
    }
    const unsuccessful = await readUnsuccessfulCharges(ledger.database, owner, question)
    const cancelled = ended.filter(({ status }) => status === 'cancelled')
    assert.equal(
      unsuccessful.reduce((total, row) => total + row.charged, 0n),
      cancelled.reduce((total, row) => total + row.charged, 0n),
    )
  }
})
