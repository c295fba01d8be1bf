import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { findAccount } from '../../src/ledger/accounts.ts'
import { completed, created, text } from '../support/scripted-upstream.ts'
import { getRow, postChat, type TestAccount } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

// The database reports that it has no disk space, memory or time, so certainly nothing was written: for the hold and for the end of a
// request.

const suite = serviceSuite({}, async ({ database }) => {
  await database.execute(`
    create sequence refusals;
    create function refuse() returns trigger language plpgsql as $$
    begin
      perform nextval('refusals');
      raise exception 'the test says no' using errcode = tg_argv[0];
    end $$`)
})
const messages = [{ role: 'user', content: 'What is a penny?' }]
const price = 10 + 5 * 5
let account: TestAccount
beforeEach(async () => {
  account = await suite.service.openAccount('1')
  suite.upstream.answer = (exchange) => {
    exchange.send(created, text('one two three four five'), completed())
    exchange.end()
  }
})

for (const [what, state] of [
  ['no room', '53100'],
  ['no memory', '53200'],
  ['an I/O error', '58030'],
  ['no answer in time', '57014'],
] as const) {
  test(`${what} for a hold: the request gets a retryable error immediately, and holds nothing`, async () => {
    await refuseWhile('holds', state, async () => {
      for (const headers of [{}, { 'idempotency-key': 'a' }] as Record<string, string>[]) {
        const answer = await postChat(suite.service, account.apiKey, { messages }, { headers })
        const { error } = (await answer.json()) as { error: { code: string } }
        assert.deepEqual([answer.status, error.code], [503, 'overloaded'])
        assert.ok(answer.headers.has('retry-after'))
      }
    })
    assert.deepEqual(await balance(), { spendable: 1_000_000n, held: 0n })
    const { status } = await postChat(
      suite.service,
      account.apiKey,
      { messages },
      { headers: { 'idempotency-key': 'a' } },
    )
    assert.equal(status, 200)
  })

  test(`${what} for a charge: the answer waits for it, and is charged once`, async () => {
    const asked = await refuseWhile('requests', state, async () => {
      const running = postChat(suite.service, account.apiKey, { messages })
      const refused = await refusals()
      while ((await refusals()) < refused + 3n) await nextTurn()
      return { running }
    })
    const answer = await asked.running
    assert.equal(answer.status, 200)
    assert.equal(Number((await getRow(suite.service, account.apiKey, answer)).charged_atomic), price)
    assert.deepEqual(await balance(), { spendable: 1_000_000n - BigInt(price), held: 0n })
  })
}

test('no disk space for a retry’s claim: the request gets a retryable error, not an internal one', async () => {
  await refuseWhile('replays', '53100', async () => {
    const headers = { 'idempotency-key': 'b' }
    assert.equal((await postChat(suite.service, account.apiKey, { messages }, { headers })).status, 503)
  })
})

/** While the work runs, no row can be added to that table: holds, ends, or retries. */
async function refuseWhile<Result>(
  table: 'holds' | 'requests' | 'replays',
  state: string,
  work: () => Promise<Result>,
): Promise<Result> {
  const { database } = suite.service
  await database.execute(
    `create trigger no_room before insert on ${table} for each row execute function refuse('${state}')`,
  )
  try {
    return await work()
  } finally {
    await database.execute(`drop trigger no_room on ${table}`)
  }
}

/** How often the trigger has refused: a sequence is not rolled back with its transaction. */
async function refusals(): Promise<bigint> {
  const [row] = await suite.service.database.query<{ count: bigint }>('select last_value as count from refusals')
  return row!.count
}

async function balance() {
  const { spendable, held } = (await findAccount(suite.service.database, account.partition, account.id))!
  return { spendable, held }
}
