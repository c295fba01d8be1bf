import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { postChat, startTestService, type TestService } from '../support/service.ts'

let service: TestService
before(async () => {
  service = await startTestService({ environment: { AUDIT_MS: '50' } })
})
after(() => service.stop())

const messages = [{ role: 'user', content: 'Hello' }]

test('an atomic unit that is not accounted for stops new requests, and readiness says why', async () => {
  const { apiKey, id } = await service.openAccount('25')
  assert.equal((await postChat(service, apiKey, { messages })).status, 200)
  await service.database.query('update accounts set gateway = gateway + 1 where id = $1', [id])
  const ready = await untilNotReady()
  assert.match(ready.problems.ledger!, /^frozen: I1 is broken/)
  const answer = await postChat(service, apiKey, { messages })
  assert.equal(answer.status, 503)
  assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'ledger_frozen')
})

async function untilNotReady(): Promise<{ problems: Record<string, string> }> {
  for (;;) {
    const answer = await fetch(`${service.origin}/readyz`)
    if (answer.status === 503) return (await answer.json()) as { problems: Record<string, string> }
    await answer.arrayBuffer()
  }
}
