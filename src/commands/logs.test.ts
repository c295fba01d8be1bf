import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { clientWithKey } from './client.ts'
import { tail } from './logs.ts'

test('a tail shows the last requests once, then every request that ends, even if many began meanwhile', async (t) => {
  type Row = { readonly id: string; status: 'held' | 'succeeded' | 'refused' }
  type Shown = { readonly id: string }
  const rows: Row[] = []
  const begin = (id: string, status: Row['status'] = 'succeeded') => rows.unshift({ id, status })
  for (let number = 0; number < 250; number += 1) begin(`old ${number}`, number === 100 ? 'held' : 'succeeded')
  // Meant to be read in pages, newest first.
  const server = createServer((incoming, outgoing) => {
    const { pathname, searchParams } = new URL(incoming.url!, 'http://localhost')
    const [, id] = /^\/api\/requests\/(.*)$/.exec(decodeURI(pathname)) ?? []
    const from = Number(searchParams.get('cursor'))
    const to = from + Number(searchParams.get('limit'))
    const wanted = searchParams.getAll('status')
    const fitting = wanted.length === 0 ? rows : rows.filter(({ status }) => wanted.includes(status))
    const page = { data: fitting.slice(from, to), next_cursor: to < fitting.length ? String(to) : null }
    outgoing.end(JSON.stringify(id === undefined ? page : rows.find((row) => row.id === id)))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => void server.close())
  const client = clientWithKey(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, 'penny_test')

  const shown: string[] = []
  assert.equal(await tail(client, { last: 200, once: true, show: ({ id }) => shown.push(id) }), 0)
  assert.deepEqual(
    shown,
    Array.from({ length: 200 }, (_, index) => `old ${index < 51 ? index + 49 : index + 50}`),
  )

  shown.length = 0
  rows.push({ id: 'oldest', status: 'refused' })
  const refused = { last: 1, once: true, status: 'refused', show: ({ id }: Shown) => shown.push(id) }
  assert.equal(await tail(client, refused), 0)
  assert.deepEqual(shown, ['oldest'], 'however many others came later')
  rows.pop()

  shown.length = 0
  const tailing = tail(client, {
    last: 1,
    once: false,
    show: ({ id }) => {
      shown.push(id)
      if (id === 'old 249') {
        for (let number = 0; number < 150; number += 1) begin(`new ${number}`, number === 3 ? 'held' : 'succeeded')
      }
      if (id === 'new 149') {
        for (let number = 0; number < 150; number += 1) begin(`late ${number}`)
        rows.find((row) => row.id === 'new 3')!.status = 'succeeded'
      }
      if (id === 'late 149') process.emit('SIGINT')
    },
  })
  assert.equal(await tailing, 0)
  const news = Array.from({ length: 150 }, (_, index) => `new ${index}`).filter((id) => id !== 'new 3')
  const late = Array.from({ length: 150 }, (_, index) => `late ${index}`)
  assert.deepEqual(shown, ['old 249', ...news, 'new 3', ...late])
})
