import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { entryOf } from '../../test/support/people.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { eventTypes } from '../db/write-event.ts'
import { createKey, revokeKey, updateKey } from '../identity/api-keys.ts'
import { openSession } from '../identity/sessions.ts'
import { fromAtomic, parse } from '../money/usdc.ts'
import { createEndpoint } from '../webhooks/endpoints.ts'
import { creditDeposit } from './deposits.ts'
import { deleteExcessEvents, deleteOldEvents } from './events.ts'
import type { Payer } from './hold-calls.ts'
import { createRequestId } from './request-id.ts'
import { advanceTransfer } from './transfers.ts'
import { requestWithdrawal } from './withdrawals.ts'

const ledger = ledgerSuite()

type EventRow = {
  readonly id: string
  readonly number: bigint
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

async function listen({ partition, accountId }: Payer, types: readonly string[] | null): Promise<void> {
  await ledger.database.query('update accounts set event_types = $3 where partition = $1 and id = $2', [
    partition,
    accountId,
    types,
  ])
}

function eventsOf({ accountId }: Payer): Promise<readonly EventRow[]> {
  return ledger.database.query<EventRow>(
    'select id, number, type, data from events where account_id = $1 order by number',
    [accountId],
  )
}

test('an account without a listener has no events', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  await holds.end(charge(await hold(holds, payer, 100n), 50n))
  assert.deepEqual(await eventsOf(payer), [])
})

test('everything that webhooks promise is an event, numbered in the order in which it was committed', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n, { limit: fromAtomic(200n) })
  const { partition, accountId } = payer
  await listen(payer, eventTypes)

  const placed = await hold(holds, payer, 200n)
  await holds.end(charge(placed, 150n))
  const refuse = () =>
    holds.refuse({
      requestId: createRequestId(partition, Date.now()),
      payer,
      model: 'm',
      stream: false,
      maxTokens: 1,
      errorCode: 'key_limit_exceeded',
    })
  refuse()
  await holds.drained()
  refuse()
  await holds.drained()
  await settle(database, [payer], 'completed')
  const depositId = randomUUID()
  const deposit = { partition, id: depositId, accountId, amount: parse('1'), source: 'test' }
  await creditDeposit(database, deposit)
  await creditDeposit(database, deposit)
  const withdrawal = await requestWithdrawal(database, {
    partition,
    accountId,
    id: randomUUID(),
    amount: parse('1'),
    recipient: `0x${'a'.repeat(40)}`,
    min: parse('0.1'),
  })
  await advanceTransfer(database, withdrawal, { state: 'failed', reason: 'no gas' })
  const { id } = await createKey(database, { partition, accountId, name: 'second' })
  await updateKey(database, id, { limit: parse('2'), options: { webTools: false } })
  await revokeKey(database, id)
  await openSession(database, await entryOf(database, payer), 'local', 'a browser')

  const events = await eventsOf(payer)
  assert.deepEqual(
    events.map(({ number, type }) => [Number(number), type]),
    [
      'request.ended',
      'request.refused',
      'key.limit_reached',
      'request.refused',
      'payment.settled',
      'deposit.credited',
      'withdrawal.updated',
      'withdrawal.updated',
      'key.created',
      'key.updated',
      'key.revoked',
      'member.changed',
      'session.created',
    ].map((type, index) => [index + 1, type]),
  )
  const dataOf = (type: string) => events.filter((event) => event.type === type).map(({ data }) => data)
  // Its data are those of the request, which never change.
  assert.deepEqual([events[0]!.id, events[0]!.data], [placed.requestId, null])
  assert.partialDeepStrictEqual(dataOf('key.limit_reached'), [{ id: payer.keyId, limit_atomic: '200' }])
  assert.partialDeepStrictEqual(dataOf('payment.settled'), [{ number: 1, value_atomic: '150', tx_hash: null }])
  assert.deepEqual(dataOf('deposit.credited'), [{ id: depositId, amount_atomic: '1000000', source: 'test' }])
  assert.partialDeepStrictEqual(dataOf('withdrawal.updated'), [
    { state: 'requested', amount_atomic: '1000000' },
    { state: 'failed', reason: 'no gas' },
  ])
  assert.deepEqual(dataOf('key.updated'), [{ id, changed: ['limit', 'web_tools'] }])
})

test('only requested event types are written, also in a batch of many accounts', async () => {
  const holds = await openLedger(ledger.database)
  const payers = await Promise.all(Array.from({ length: 4 }, () => openPayer(ledger.database, 10_000n)))
  await listen(payers[0]!, ['request.ended'])
  await listen(payers[1]!, ['deposit.credited'])
  const placed = await Promise.all([...payers, ...payers].map((payer) => hold(holds, payer, 100n)))
  await Promise.all(placed.map((one) => holds.end(charge(one, 10n))))
  const counts = await Promise.all(payers.map(async (payer) => (await eventsOf(payer)).map(({ number }) => number)))
  assert.deepEqual(counts, [[1n, 2n], [], [], []])
})

// A failure of the events' table must not cost any money.
test('an event that cannot be written stops no end and no deposit', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await listen(payer, eventTypes)
  await database.execute(`alter table events add constraint broken check (account_id <> '${payer.accountId}')`)
  try {
    const end = await holds.end(charge(await hold(holds, payer, 100n), 50n))
    assert.equal(end.endedNow, true)
  } finally {
    await database.execute('alter table events drop constraint broken')
  }
  assert.deepEqual(await eventsOf(payer), [])
  await holds.end(charge(await hold(holds, payer, 100n), 50n))
  assert.deepEqual(
    (await eventsOf(payer)).map(({ number }) => number),
    [2n],
  )
})

// Such an error can be fixed or passes: the end comes again, and its event is not lost.
test('an error that is not about the event itself is reported, not hidden with the event', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await listen(payer, eventTypes)
  const placed = await hold(holds, payer, 100n)
  await database.execute('alter table events rename column type to kind')
  try {
    await assert.rejects(holds.end(charge(placed, 50n)), { code: '42703' })
  } finally {
    await database.execute('alter table events rename column kind to type')
  }
  assert.equal((await holds.end(charge(placed, 50n))).endedNow, true)
  assert.equal((await eventsOf(payer)).length, 1)
})

test('events are deleted after four days, and the oldest of an account that has too many', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  await listen(payer, eventTypes)
  for (let count = 0; count < 5; count += 1) await holds.end(charge(await hold(holds, payer, 10n), 1n))
  await database.query(`update events set created_at = $2 where account_id = $1 and number = 1`, [
    payer.accountId,
    new Date(Date.now() - 5 * 86_400_000),
  ])
  const numbers = async () => (await eventsOf(payer)).map(({ number }) => number)
  await deleteOldEvents(database)
  assert.deepEqual(await numbers(), [2n, 3n, 4n, 5n])
  await deleteExcessEvents(database, { newestMax: 2, keptMax: 100 })
  assert.deepEqual(await numbers(), [4n, 5n])
})

// A webhook endpoint that is slow, or paused after a failure, must not lose its events to those of others.
test('an undelivered event is kept, within a limit', async () => {
  const { database } = ledger
  const holds = await openLedger(database)
  const payer = await openPayer(database, 10_000n)
  const terms = { url: 'https://example.com/', types: ['deposit.credited'], description: '' } as const
  const { id } = await database.transaction((connection) => createEndpoint(connection, payer, terms))
  await listen(payer, eventTypes)
  const { partition, accountId } = payer
  await creditDeposit(database, { partition, id: randomUUID(), accountId, amount: parse('1'), source: 'test' })
  for (let count = 0; count < 4; count += 1) await holds.end(charge(await hold(holds, payer, 10n), 1n))
  const numbers = async () => (await eventsOf(payer)).map(({ number }) => number)
  await deleteExcessEvents(database, { newestMax: 2, keptMax: 100 })
  assert.deepEqual(await numbers(), [1n, 4n, 5n])
  await deleteExcessEvents(database, { newestMax: 2, keptMax: 3 })
  assert.deepEqual(await numbers(), [4n, 5n])
  await database.query('update webhook_endpoints set sent_to = 4 where partition = $1 and id = $2', [partition, id])
  await deleteExcessEvents(database, { newestMax: 1, keptMax: 100 })
  assert.deepEqual(await numbers(), [5n])
})
