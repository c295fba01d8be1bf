import assert from 'node:assert/strict'
import { BlockList, SocketAddress } from 'node:net'
import { test } from 'node:test'
import fc from 'fast-check'
import { addressKey, isPublicAddress } from './addresses.ts'

const refused = `
  0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
  168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.0 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1
  192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1
  255.255.255.255
  :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 0:0:0:0:0:ffff:7f00:0001
  64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::8.8.8.8 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2
  2001:db8::1 2001:1ff:ffff::1 2002:7f00:1::1 2002:808:808::1 3fff::1 3fff:fff:ffff::1 5f00::1 fc00::1 fd00::2
  fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%eth0 febf::1 fec0::1 ff02::1 ff0e::1 4000::1 1fff::1 ::8.8.8.8
  ::ffff:0:8.8.8.8
`
const allowed = `
  1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 168.63.129.15 169.253.255.255
  169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.1 192.0.3.1 192.88.98.255 192.167.255.255 192.169.0.0
  198.17.255.255 198.20.0.0 203.0.112.255 203.0.114.0 223.255.255.255
  2000::1 2001:200::1 2001:4860:4860::8888 2606:4700::1111 2a00:1450:4001:81b::200e 3ffe::1 2003::1
  ::ffff:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b::808:808
`
const notAddresses = [
  '',
  'localhost',
  '127.1',
  '0x7f.1',
  '2130706433',
  '1.2.3',
  '1.2.3.4.5',
  '[::1]',
  '8.8.8.8 ',
  '::g',
]

test('no address that is private, local, special or reserved counts as public', () => {
  assert.deepEqual(words(refused).filter(isPublicAddress), [])
})

test('the neighbours of every special range are public', () => {
  const wrong = words(allowed).filter((address) => !isPublicAddress(address))
  assert.deepEqual(wrong, [])
})

test('a text that is not an address is not public', () => {
  assert.deepEqual(notAddresses.filter(isPublicAddress), [])
})

test('every spelling of an address is judged alike', () => {
  fc.assert(
    fc.property(fc.ipV6(), (address) => {
      const other = URL.parse(`http://[${address}]/`)!.hostname.slice(1, -1)
      return isPublicAddress(address) === isPublicAddress(other) && addressKey(address) === addressKey(other)
    }),
  )
})

test('an IPv4 address in an IPv6 form is never more public than it is', () => {
  fc.assert(
    fc.property(
      fc.ipV4(),
      fc.constantFrom('::ffff:', '::', '64:ff9b::', '64:ff9b:1::', '::ffff:0:'),
      (address, prefix) => !isPublicAddress(`${prefix}${address}`) || isPublicAddress(address),
    ),
  )
})

test('Node’s own range check agrees on every private address', () => {
  const list = new BlockList()
  for (const [net, bits] of [
    ['10.0.0.0', 8],
    ['127.0.0.0', 8],
    ['169.254.0.0', 16],
    ['172.16.0.0', 12],
    ['192.168.0.0', 16],
  ] as const)
    list.addSubnet(net, bits, 'ipv4')
  for (const [net, bits] of [
    ['fc00::', 7],
    ['fe80::', 10],
    ['::1', 128],
  ] as const)
    list.addSubnet(net, bits, 'ipv6')
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (address) => {
      const family = address.includes(':') ? 'ipv6' : 'ipv4'
      return !list.check(new SocketAddress({ address, family })) || !isPublicAddress(address)
    }),
    { numRuns: 2_000 },
  )
})

test('a mapped address equals the address it carries', () => {
  assert.equal(addressKey('::ffff:8.8.8.8'), addressKey('8.8.8.8'))
  assert.notEqual(addressKey('::8.8.8.8'), addressKey('8.8.8.8'))
})

function words(text: string): string[] {
  return text.trim().split(/\s+/)
}
