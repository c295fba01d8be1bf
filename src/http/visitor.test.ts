import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { test } from 'node:test'
import { visitorOf } from './visitor.ts'

function from(remoteAddress: string, headers: Record<string, string> = {}): IncomingMessage {
  return { headers, socket: { remoteAddress } } as unknown as IncomingMessage
}

test('a client cannot choose the address it is counted by', () => {
  const lying = { 'x-forwarded-for': '198.51.100.9' }
  assert.equal(visitorOf(from('203.0.113.5', lying), false).network, '203.0.113.5')
  const proxied = { 'x-forwarded-for': '198.51.100.9, 203.0.113.5' }
  assert.equal(visitorOf(from('10.0.0.1', proxied), true).network, '203.0.113.5')
})

test('all of a network that one customer has is counted together', () => {
  assert.equal(
    visitorOf(from('2001:db8:1:2:3:4:5:6'), false).network,
    visitorOf(from('2001:db8:1:2::9'), false).network,
  )
  assert.equal(visitorOf(from('::ffff:203.0.113.5'), false).network, '203.0.113.5')
})

test('whoever comes through a proxy does not sit at this machine', () => {
  assert.equal(visitorOf(from('127.0.0.1'), false).isLocal, true)
  assert.equal(visitorOf(from('::1'), false).isLocal, true)
  assert.equal(visitorOf(from('203.0.113.5'), false).isLocal, false)
  for (const name of ['x-forwarded-for', 'forwarded', 'x-real-ip']) {
    assert.equal(visitorOf(from('127.0.0.1', { [name]: '127.0.0.1' }), false).isLocal, false, name)
  }
  assert.equal(visitorOf(from('127.0.0.1', { 'x-forwarded-for': '203.0.113.5' }), true).isLocal, false)
})
