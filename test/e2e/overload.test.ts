import assert from 'node:assert/strict'
import { test } from 'node:test'
import { completed, created, text } from '../support/scripted-upstream.ts'
import { postChat } from '../support/service.ts'
import { serviceSuite } from '../support/suites.ts'

const suite = serviceSuite({ REQUESTS_MAX: '5' }, ({ database }) =>
  database.execute(`
    create sequence moves;
    create function count_move() returns trigger language plpgsql as 'begin perform nextval(''moves''); return null; end';
    create trigger count_moves after update on accounts for each statement execute function count_move()`),
)

test('more requests at once than can be served are told to come back, before anything is held, and the others are served', async () => {
  const { service, upstream } = suite
  const { apiKey } = await service.openAccount('25')
  const go = Promise.withResolvers<void>()
  upstream.answer = async (exchange) => {
    await go.promise
    exchange.send(created, text('Hi'), completed())
    exchange.end()
  }
  const ask = () => postChat(service, apiKey, { messages: [{ role: 'user', content: 'Hi' }] })
  const served = Array.from({ length: 5 }, ask)
  while (upstream.exchanges.length < 5) await new Promise((resolve) => setImmediate(resolve))

  const before = await moves()
  const shed = await Promise.all(Array.from({ length: 20 }, ask))
  // That they were refused is noted in the log later; no account was touched for them.
  assert.equal(await moves(), before)
  for (const answer of shed) {
    const { error } = (await answer.json()) as { error: { code: string } }
    assert.deepEqual([answer.status, error.code], [503, 'overloaded'])
    assert.equal(answer.headers.get('x-should-retry'), 'true')
    assert.ok(Number(answer.headers.get('retry-after')) <= 60)
    assert.equal(answer.headers.get('x-router-held-usdc'), null)
  }
  assert.equal(upstream.exchanges.length, 5)
  go.resolve()
  assert.deepEqual(
    (await Promise.all(served)).map(({ status }) => status),
    [200, 200, 200, 200, 200],
  )
  assert.equal((await ask()).status, 200)
})

/** How often an account has been written so far. */
async function moves(): Promise<bigint> {
  const [row] = await suite.service.database.query<{ count: bigint }>('select last_value as count from moves')
  return row!.count
}
