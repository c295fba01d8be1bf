import assert from 'node:assert/strict'
import { test } from 'node:test'
import { charge, holdCall, openLedger, openPayer, searched, searchPrice } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { refuseOtherComposites } from '../db/composite.ts'
import { fromAtomic } from '../money/usdc.ts'
import { holdComposites } from './hold-statements.ts'
import { createRequestId } from './request-id.ts'

const ledger = ledgerSuite()

// PostgreSQL reads the rows that are passed to the functions of the ledger by position, and most of their columns are integers: two that
// changed places would be written without an error. So each value here is different.
test('every field of a request is stored under its own name', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 1_000_000n)
  const decision = await holds.place({ ...holdCall(payer, 101n), maxTokens: 102, stream: true, bodyHash: 103n })
  assert.ok('hold' in decision)
  const { hold } = decision
  assert.equal(await holds.extend({ requestId: hold.requestId, payer, total: fromAtomic(searchPrice) }), 'extended')
  const [line] = await database.query('select * from holds where id = $1', [hold.requestId])
  assert.partialDeepStrictEqual(line, {
    account_id: payer.accountId,
    key_id: payer.keyId,
    model: 'm',
    stream: true,
    max_tokens: 102,
    body_hash: 103n,
    quote: 101n,
    extended: searchPrice,
  })
  holds.checkpoint({ requestId: hold.requestId, partition: payer.partition, promptTokens: 11, completionTokens: 12 })
  await until(async () => {
    const [row] = await database.query<{ done: boolean }>(
      'select prompt_tokens is not null as done from holds where id = $1',
      [hold.requestId],
    )
    return row!.done
  })
  const [checkpoint] = await database.query('select prompt_tokens, completion_tokens from holds where id = $1', [
    hold.requestId,
  ])
  assert.deepEqual({ ...checkpoint }, { prompt_tokens: 11, completion_tokens: 12 })
  holds.recordToolCall(searched(hold, 1))
  const end = charge(hold, searchPrice + 31n, {
    status: 'cancelled',
    searchCost: fromAtomic(searchPrice),
    searchCalls: 1,
    fetchCalls: 2,
    usage: { promptTokens: 21, completionTokens: 10, reasoningTokens: 4, cachedTokens: 5, source: 'counted' },
    finishReason: 'length',
    errorCode: 'upstream_error',
    firstTokenMs: 6,
    totalMs: 7,
    upstream: { provider: 'p', attempts: 3, cost: fromAtomic(8n) },
  })
  await holds.end(end)
  const [row] = await database.query('select * from requests where id = $1', [hold.requestId])
  assert.partialDeepStrictEqual(row, {
    account_id: payer.accountId,
    key_id: payer.keyId,
    status: 'cancelled',
    voided: false,
    charged: searchPrice + 31n,
    search_cost: searchPrice,
    search_calls: 1,
    fetch_calls: 2,
    tool_calls: { 1: { kind: 'search', status: 'completed', cost: Number(searchPrice), results: 5 } },
    prompt_tokens: 21,
    completion_tokens: 10,
    reasoning_tokens: 4,
    cached_tokens: 5,
    usage_source: 'counted',
    finish_reason: 'length',
    error_code: 'upstream_error',
    first_token_ms: 6,
    total_ms: 7,
    provider: 'p',
    attempts: 3,
    upstream_cost: 8n,
  })
})

test('every field of a refusal is stored under its own name', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 0n)
  const requestId = createRequestId(payer.partition, Date.now())
  holds.refuse({ requestId, payer, model: 'm', stream: true, maxTokens: 9, errorCode: 'insufficient_balance' })
  await until(async () => (await database.query('select from requests where id = $1', [requestId])).length === 1)
  const [row] = await database.query('select * from requests where id = $1', [requestId])
  assert.partialDeepStrictEqual(row, {
    account_id: payer.accountId,
    key_id: payer.keyId,
    status: 'refused',
    model: 'm',
    stream: true,
    max_tokens: 9,
    error_code: 'insufficient_balance',
  })
})

test('a service does not start on a database whose types have other columns, or the same ones in another order', async () => {
  const { database, drop } = await testDatabase()
  try {
    await refuseOtherComposites(database, holdComposites)
    await database.execute('alter type checkpoint_call add attribute extra integer cascade')
    await assert.rejects(refuseOtherComposites(database, holdComposites), {
      message:
        /type checkpoint_call .* Database: id, prompt_tokens, completion_tokens, extra\. Written: id, prompt_tokens, completion_tokens\./,
    })
    await database.execute(`
      drop type checkpoint_call cascade;
      create type checkpoint_call as (id uuid, completion_tokens integer, prompt_tokens integer)`)
    await assert.rejects(refuseOtherComposites(database, holdComposites), {
      message: /^The type checkpoint_call of the database has other columns/,
    })
    await database.execute('drop type checkpoint_call cascade')
    await assert.rejects(refuseOtherComposites(database, holdComposites), { message: /Database: no such type\./ })
  } finally {
    await drop()
  }
})
