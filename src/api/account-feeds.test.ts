import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { charge, hold, openLedger, openPayer } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { creditDeposit } from '../ledger/deposits.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { endStaleWatches } from '../ledger/watched-accounts.ts'
import { fromAtomic } from '../money/usdc.ts'
import { AccountFeeds, type AccountFeedsOptions, type FeedEvent, type Listener } from './account-feeds.ts'

const ledger = ledgerSuite()

/** The live views of one node. */
function openNode(options: Partial<AccountFeedsOptions> = {}): AccountFeeds {
  const onError = (error: unknown) => assert.fail(error as Error)
  return new AccountFeeds({ database: ledger.database, everyMs: 5, onError, ...options })
}

/** The changes that a listener received, in short form. */
class Received {
  readonly words: string[] = []
  number = 0n
  readonly listener: Listener = (events, number) => {
    this.words.push(...events.filter(({ type }) => type !== 'balance').map(wordOf))
    this.number = number
  }
  heard(...words: readonly string[]): Promise<unknown> {
    return until(() => words.every((word) => this.words.includes(word)))
  }
}

function wordOf(event: FeedEvent): string {
  if (event.type === 'request') return `${event.change} ${event.request.id}`
  if (event.type === 'deposit') return `deposit ${event.deposit.amount}`
  return event.type
}

async function eventsOf({ accountId }: Payer): Promise<readonly string[]> {
  const rows = await ledger.database.query<{ type: string }>(
    'select type from events where account_id = $1 order by number',
    [accountId],
  )
  return rows.map(({ type }) => type)
}

function credit({ partition, accountId }: Payer, amount: bigint): Promise<boolean> {
  const deposit = { partition, id: randomUUID(), accountId, amount: fromAtomic(amount), source: 'test' }
  return creditDeposit(ledger.database, deposit)
}

async function expireWatch({ partition, accountId }: Payer): Promise<void> {
  await ledger.database.query(
    `update accounts set watched_until = now() - interval '1 second' where partition = $1 and id = $2`,
    [partition, accountId],
  )
  await endStaleWatches(ledger.database)
}

test('a live view gets changes from any node, each once, and only of its own account', async () => {
  const holds = await openLedger(ledger.database)
  const [payer, other] = [await openPayer(ledger.database, 10_000n), await openPayer(ledger.database, 10_000n)]
  const received = [new Received(), new Received()]
  const views = await Promise.all(received.map(({ listener }) => openNode().watch(payer, listener)))
  await credit(other, 9n)
  const placed = await hold(holds, payer, 100n)
  await Promise.all(received.map((one) => one.heard(`started ${placed.requestId}`)))
  await holds.end(charge(placed, 40n))
  await Promise.all(received.map((one) => one.heard(`ended ${placed.requestId}`)))
  await credit(payer, 7n)
  await Promise.all(received.map((one) => one.heard('deposit 7')))
  const expected = [`started ${placed.requestId}`, `ended ${placed.requestId}`, 'deposit 7']
  assert.deepEqual(
    received.map(({ words }) => words),
    [expected, expected],
  )
  assert.deepEqual(await eventsOf(other), [])
  for (const view of views) view.stop()
})

test('a view that reconnects, to any node, gets the changes it missed', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const first = new Received()
  const before = await openNode().watch(payer, first.listener)
  await credit(payer, 1n)
  await first.heard('deposit 1')
  before.stop()
  const placed = await hold(holds, payer, 100n)
  await holds.end(charge(placed, 40n))
  await credit(payer, 2n)
  const second = new Received()
  const after = await openNode().watch(payer, second.listener, first.number)
  assert.deepEqual([after.isResumed, after.number], [true, first.number + 3n])
  // Deposits are sent as they are now, also those that were sent before.
  assert.deepEqual(second.words, [`ended ${placed.requestId}`, 'deposit 10000', 'deposit 1', 'deposit 2'])
  after.stop()
})

test('a view that missed changes that cannot be sent again is notified', async () => {
  const payer = await openPayer(ledger.database, 10_000n)
  const first = new Received()
  const node = openNode({ renewMs: 0 })
  const view = await node.watch(payer, first.listener)
  await credit(payer, 1n)
  await first.heard('deposit 1')
  const resumedAt = first.number
  // The database was out of reach for longer than a watch lasts.
  await ledger.database.query('update accounts set watched_until = null where partition = $1 and id = $2', [
    payer.partition,
    payer.accountId,
  ])
  await first.heard('missed')
  view.stop()
  for (const after of [resumedAt - 1n, resumedAt + 1_000n]) {
    const late = await openNode().watch(payer, new Received().listener, after)
    assert.equal(late.isResumed, false, String(after))
    late.stop()
  }
})

async function writeEvents({ partition, accountId }: Payer, type: string, data: string, count = 1): Promise<void> {
  await ledger.database.query(
    `select write_events($1, array(select row($2::uuid, $3, ${data})::event_call from generate_series(1, $4)))`,
    [partition, accountId, type, count],
  )
}

test('a burst above the limit delivers the newest changes and asks the view to refetch', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 1_000_000n)
  const received = new Received()
  const view = await openNode().watch(payer, received.listener)
  await writeEvents(payer, 'account.changed', `'{}'`, 600)
  const placed = await hold(holds, payer, 100n)
  await holds.end(charge(placed, 40n))
  await received.heard('missed', `ended ${placed.requestId}`)
  received.words.length = 0
  // One batch of more requests than its event names.
  await writeEvents(
    payer,
    'requests.ended',
    'live_requests(array(select gen_random_uuid() from generate_series(1, 51)))',
  )
  await received.heard('missed')
  view.stop()
})

test('a view that reconnects after many requests refetches: their changes would fill its stream before the client reads', async () => {
  const payer = await openPayer(ledger.database, 10_000n)
  const first = new Received()
  const before = await openNode().watch(payer, first.listener)
  await credit(payer, 1n)
  await first.heard('deposit 1')
  before.stop()
  const fifty = 'live_requests(array(select gen_random_uuid() from generate_series(1, 50)))'
  for (let batch = 0; batch < 2; batch += 1) await writeEvents(payer, 'requests.ended', fifty)
  const [within, above] = [new Received(), new Received()]
  const resumed = await openNode().watch(payer, within.listener, first.number)
  assert.equal(resumed.isResumed, true)
  resumed.stop()
  await writeEvents(payer, 'requests.ended', fifty)
  const late = await openNode().watch(payer, above.listener, first.number)
  assert.deepEqual([late.isResumed, late.number, above.words], [false, first.number + 3n, []])
  late.stop()
})

test('a batch of requests is one event for a live view, and one for each request that a webhook endpoint wants', async () => {
  const holds = await openLedger(ledger.database)
  const [seen, both] = [await openPayer(ledger.database, 10_000n), await openPayer(ledger.database, 10_000n)]
  const wanted = [both.partition, both.accountId, ['request.ended']]
  await ledger.database.query('update accounts set event_types = $3 where partition = $1 and id = $2', wanted)
  const node = openNode()
  const received = [new Received(), new Received()] as const
  const views = [await node.watch(seen, received[0].listener), await node.watch(both, received[1].listener)]
  const payers = [seen, seen, both, both]
  const placed = await Promise.all(payers.map((payer) => hold(holds, payer, 100n)))
  await Promise.all(placed.map((one) => holds.end(charge(one, 40n))))
  const ended = placed.map(({ requestId }) => `ended ${requestId}`)
  await received[0].heard(...ended.slice(0, 2))
  await received[1].heard(...ended.slice(2))
  const numbers = (of: Payer) => eventsOf(of).then((types) => types.filter((type) => type === 'request.ended').length)
  assert.deepEqual([await numbers(seen), await numbers(both)], [0, 2])
  for (const view of views) view.stop()
})

test('events of a closed live view are deleted, unless a webhook endpoint needs them', async () => {
  const [payer, listening] = [await openPayer(ledger.database, 10_000n), await openPayer(ledger.database, 10_000n)]
  await ledger.database.query(
    `update accounts set event_types = '{deposit.credited}' where partition = $1 and id = $2`,
    [listening.partition, listening.accountId],
  )
  const node = openNode()
  for (const one of [payer, listening]) {
    const view = await node.watch(one, () => {})
    await credit(one, 1n)
    view.stop()
    await credit(one, 2n)
    await endStaleWatches(ledger.database)
    assert.equal((await eventsOf(one)).length, 2, 'a browser may reconnect')
    await expireWatch(one)
    await credit(one, 3n)
  }
  assert.deepEqual([(await eventsOf(payer)).length, (await eventsOf(listening)).length], [0, 3])
})
