import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UnidentifiedCalls } from './unidentified-calls.ts'

const refusal = { code: 'invalid_api_key', message: 'This API key does not exist.' } as const

function from(network: string, { isLocal = false, forwarded }: { isLocal?: boolean; forwarded?: string } = {}) {
  return { network, isLocal, header: (name: string) => (name === 'x-forwarded-for' ? forwarded : undefined) }
}

function watching(calls: UnidentifiedCalls, visitor: ReturnType<typeof from>) {
  const heard: string[] = []
  return { heard, stop: calls.watch(visitor, ({ code }) => heard.push(code)) }
}

test('a call with a wrong key is reported to dashboards on the same network only, at most once a second', () => {
  let nowMs = 0
  const calls = new UnidentifiedCalls({ trustProxy: false, now: () => nowMs })
  const [here, second] = [watching(calls, from('192.0.2.1')), watching(calls, from('192.0.2.1'))]
  const elsewhere = watching(calls, from('192.0.2.2'))
  for (const at of [0, 1, 999, 1_000]) {
    nowMs = at
    calls.report(from('192.0.2.1'), refusal)
  }
  assert.deepEqual(here.heard, ['invalid_api_key', 'invalid_api_key'])
  assert.deepEqual(second.heard, here.heard)
  assert.deepEqual(elsewhere.heard, [])
  second.stop()
  here.stop()
  here.stop()
  nowMs = 5_000
  calls.report(from('192.0.2.1'), refusal)
  assert.equal(here.heard.length, 2)
  const again = watching(calls, from('192.0.2.1'))
  calls.report(from('192.0.2.1'), refusal)
  assert.equal(again.heard.length, 1)
})

test('both loopback addresses are the same machine', () => {
  const calls = new UnidentifiedCalls({ trustProxy: false, now: () => 0 })
  const { heard } = watching(calls, from('127.0.0.1', { isLocal: true }))
  calls.report(from('0:0:0:0', { isLocal: true }), refusal)
  assert.equal(heard.length, 1)
})

test('behind a proxy that is not trusted nothing is reported: every client has the address of the proxy', () => {
  const proxied = from('10.0.0.1', { forwarded: '192.0.2.1' })
  for (const [trustProxy, expected] of [
    [false, 0],
    [true, 1],
  ] as const) {
    const calls = new UnidentifiedCalls({ trustProxy, now: () => 0 })
    const { heard } = watching(calls, proxied)
    calls.report(proxied, refusal)
    assert.equal(heard.length, expected)
  }
})
