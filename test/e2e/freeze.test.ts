import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { atEnd } from '../support/at-end.ts'
import { postChat, startTestService, type TestService } from '../support/service.ts'

let service: TestService
before(async () => {
  // An account counts as in use for five audits: a machine that stands still for a second must not make it miss them all.
  service = await startTestService({ environment: { AUDIT_MS: '1000' } })
})
after(() => service.stop())

const messages = [{ role: 'user', content: 'Hello' }]

test('an atomic unit that is not accounted for stops new requests, and readiness says why', async () => {
  const { apiKey, id } = await service.openAccount('25')
  assert.equal((await postChat(service, apiKey, { messages })).status, 200)
  await service.database.query('update accounts set gateway = gateway + 1 where id = $1', [id])
  const ready = await untilNotReady('ledger')
  assert.match(ready.problems.ledger!, /^frozen: I1 is broken/)
  const answer = await postChat(service, apiKey, { messages })
  assert.equal(answer.status, 503)
  assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'ledger_frozen')
})

test('readiness does not reveal the database’s error', async (t) => {
  atEnd(t, () => service.database.query('alter table migrations rename elsewhere to sha256'))
  await service.database.query('alter table migrations rename sha256 to elsewhere')
  const { problems } = await untilNotReady('database')
  assert.deepEqual(problems, { database: 'the database does not answer' })
})

async function untilNotReady(name: string): Promise<{ problems: Record<string, string> }> {
  for (;;) {
    const answer = await fetch(`${service.origin}/readyz`)
    const body = (await answer.json()) as { problems: Record<string, string> }
    if (answer.status === 503 && name in body.problems) return body
  }
}
