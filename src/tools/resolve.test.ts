import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv4 } from 'node:net'
import { after, test } from 'node:test'
import { createResolve } from './resolve.ts'

const never = new AbortController().signal
const types = { A: 1, AAAA: 28 }

/** A name server for a few names. A name without addresses exists, one that is missing does not, and `silent` gets no answer. */
const names: Readonly<Record<string, readonly string[]>> = {
  'both.example': ['93.184.215.14', '93.184.215.15', '2606:4700::1111'],
  'four.example': ['93.184.215.14'],
  'six.example': ['2606:4700::1111'],
  'private.example': ['10.0.0.1'],
  'empty.example': [],
}
const asked: string[] = []
const server = createSocket('udp4', (question, from) => {
  const name = nameIn(question)
  asked.push(name)
  if (name !== 'silent.example') server.send(answerTo(question, names[name]), from.port, from.address)
})
server.bind(0, '127.0.0.1')
await once(server, 'listening')
after(() => server.close())
const resolve = createResolve([`127.0.0.1:${server.address().port}`])

test('every address of a name is given, of both families', async () => {
  assert.deepEqual([...(await resolve('both.example', never))].sort(), [...names['both.example']!].sort())
  assert.deepEqual(await resolve('four.example', never), ['93.184.215.14'])
  assert.deepEqual(await resolve('six.example', never), ['2606:4700::1111'])
})

test('a private answer is given as it is: the rules must see it', async () => {
  assert.deepEqual(await resolve('private.example', never), ['10.0.0.1'])
})

test('a name without addresses, and one that does not exist, have none', async () => {
  assert.deepEqual(await resolve('empty.example', never), [])
  assert.deepEqual(await resolve('missing.example', never), [])
  // The search domains of this machine's network are not appended.
  assert.ok(asked.every((name) => name.split('.').length === 2))
})

test('a DNS lookup can be aborted', async () => {
  const controller = new AbortController()
  const looking = resolve('silent.example', controller.signal)
  controller.abort()
  assert.deepEqual(await looking, [])
})

function nameIn(question: Buffer): string {
  const labels: string[] = []
  for (let at = 12; question[at] !== 0; at += question[at]! + 1) {
    labels.push(question.toString('latin1', at + 1, at + 1 + question[at]!))
  }
  return labels.join('.').toLowerCase()
}

function answerTo(question: Buffer, addresses: readonly string[] | undefined): Buffer {
  const nameEnd = question.indexOf(0, 12) + 1
  const type = question.readUInt16BE(nameEnd)
  const records = (addresses ?? []).filter((address) => type === (isIPv4(address) ? types.A : types.AAAA)).map(recordOf)
  const head = Buffer.alloc(12)
  question.copy(head, 0, 0, 2)
  head.writeUInt16BE(addresses === undefined ? 0x8183 : 0x8180, 2)
  head.writeUInt16BE(1, 4)
  head.writeUInt16BE(records.length, 6)
  return Buffer.concat([head, question.subarray(12, nameEnd + 4), ...records])
}

/** One address record, with the name of the question. */
function recordOf(address: string): Buffer {
  const data = isIPv4(address)
    ? Buffer.from(address.split('.').map(Number))
    : Buffer.from('26064700000000000000000000001111', 'hex')
  const head = Buffer.from([0xc0, 0x0c, 0, isIPv4(address) ? types.A : types.AAAA, 0, 1, 0, 0, 0, 60, 0, data.length])
  return Buffer.concat([head, data])
}
