import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { test } from 'node:test'
import fc from 'fast-check'
import { networkOf, visitorOf } from './visitor.ts'

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

// A17: addresses were grouped as they were written, so that 2001:db8::1 and 2001:db8::2 were two networks.
test('an IPv6 address belongs to its /56 however it is written, and an IPv4 address stays one', () => {
  const groups = fc.array(fc.integer({ min: 0, max: 0xffff }), { minLength: 8, maxLength: 8 })
  fc.assert(
    fc.property(groups, groups, (one, other) => {
      const isMapped = (list: number[]) => list.slice(0, 5).every((group) => group === 0) && list[5] === 0xffff
      const neighbour = [...one.slice(0, 3), (one[3]! & 0xff00) | (other[3]! & 0xff), ...other.slice(4)]
      fc.pre(!isMapped(one) && !isMapped(neighbour))
      const network = networkOf(full(one))
      for (const text of [
        compressed(one),
        compressed(one).toUpperCase(),
        `${compressed(one)}%eth0`,
        compressed(neighbour),
      ])
        assert.equal(networkOf(text), network, text)
      const stranger = one.with(3, one[3]! ^ 0x100)
      assert.notEqual(networkOf(compressed(stranger)), network)
    }),
    {
      numRuns: 500,
      examples: [
        [
          [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1],
          [0, 0, 0, 0, 0, 0, 0, 2],
        ],
      ],
    },
  )
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      const [a, b, c, d] = address.split('.').map(Number) as [number, number, number, number]
      const hex = `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
      for (const text of [address, `::ffff:${address}`, `::FFFF:${hex}`, `0:0:0:0:0:ffff:${hex}`])
        assert.equal(networkOf(text), address)
    }),
  )
  assert.equal(networkOf('2001:db8::1'), networkOf('2001:db8::2'))
  assert.equal(networkOf('nonsense'), 'nonsense')
})

function full(groups: readonly number[]): string {
  return groups.map((group) => group.toString(16).padStart(4, '0')).join(':')
}

/** As RFC 5952 and Node write it: without leading zeros, and the longest run of zeros left out. */
function compressed(groups: readonly number[]): string {
  return new URL(`http://[${full(groups)}]`).hostname.slice(1, -1)
}

test('a visitor behind a proxy does not count as local', () => {
  assert.equal(visitorOf(from('127.0.0.1'), false).isLocal, true)
  assert.equal(visitorOf(from('::1'), false).isLocal, true)
  assert.equal(visitorOf(from('203.0.113.5'), false).isLocal, false)
  for (const name of ['x-forwarded-for', 'forwarded', 'x-real-ip']) {
    assert.equal(visitorOf(from('127.0.0.1', { [name]: '127.0.0.1' }), false).isLocal, false, name)
  }
  assert.equal(visitorOf(from('127.0.0.1', { 'x-forwarded-for': '203.0.113.5' }), true).isLocal, false)
})
