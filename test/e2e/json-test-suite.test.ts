import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { assertBooksClosed } from '../support/audit.ts'
import { postChat, startTestService, type TestAccount, type TestService, withoutTools } from '../support/service.ts'

// Texts that every JSON parser must accept (y), must refuse (n), or may do either with (i).

type Vector = { readonly name: string; readonly text?: string; readonly times?: number; readonly base64?: string }
const fixture = new URL('./__fixtures__/json-test-suite.json', import.meta.url)
const { tests } = JSON.parse(readFileSync(fixture, 'utf8')) as { readonly tests: readonly Vector[] }
const bytesOf = ({ text, times = 1, base64 }: Vector) =>
  base64 === undefined ? Buffer.from(text!.repeat(times)) : Buffer.from(base64, 'base64')

let service: TestService
let account: TestAccount
before(async () => {
  let nowMs = 0
  // Hundreds of refusals are expected: none is limited.
  service = await startTestService({ ratesNow: () => (nowMs += 1_000) })
  account = await service.openAccount('25')
})
after(async () => {
  try {
    await assertBooksClosed(service.database)
  } finally {
    await service.stop()
  }
})

const request = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 16, ...withoutTools }
const start = Buffer.from(`${JSON.stringify(request).slice(0, -1)},"x":`)
const end = Buffer.from('}')

async function answerTo(body: Buffer): Promise<string> {
  const answer = await postChat(service, account.apiKey, '', { body: new Uint8Array(body) })
  const { error } = (await answer.json()) as { error?: { code: string } }
  return error === undefined ? String(answer.status) : `${answer.status} ${error.code}`
}

test('each text of JSONTestSuite is refused as a body, and as a parameter accepted exactly when it is JSON', async () => {
  const waiting = tests.values()
  const wrong: string[] = []
  const expectOne = async (vector: Vector, form: string, body: Buffer, expected: RegExp) => {
    const answer = await answerTo(body)
    if (!expected.test(answer)) wrong.push(`${vector.name} ${form}: ${answer}`)
  }
  const asParameter = { y: /^200$/, n: /^400 invalid_json$/, i: /^(200|400 invalid_json)$/ }
  const work = async () => {
    for (const vector of waiting) {
      const bytes = bytesOf(vector)
      await expectOne(vector, 'as a body', bytes, /^400 (invalid_json|missing_required_parameter)$/)
      const expected = asParameter[vector.name[0] as 'y' | 'n' | 'i']
      await expectOne(vector, 'as a parameter', Buffer.concat([start, bytes, end]), expected)
    }
  }
  await Promise.all(Array.from({ length: 8 }, work))
  assert.deepEqual(wrong, [])
})
