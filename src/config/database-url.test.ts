import assert from 'node:assert/strict'
import { test } from 'node:test'
import { changeParameter, readDatabaseServers } from './database-url.ts'

test('several hosts are read in their order, each with its port', () => {
  const after = '/penny?sslmode=disable&target_session_attrs=read-write'
  assert.deepEqual(readDatabaseServers(`postgresql://u:p%40:,x@db1:5433,[::1]:5434,db3,%2Frun%2Fpg${after}`), {
    servers: [
      { name: 'db1:5433', url: `postgresql://u:p%40:,x@db1:5433${after}` },
      { name: '[::1]:5434', url: `postgresql://u:p%40:,x@[::1]:5434${after}` },
      { name: 'db3:5432', url: `postgresql://u:p%40:,x@db3${after}` },
      { name: '/run/pg', url: `postgresql://u:p%40:,x@%2Frun%2Fpg${after}` },
    ],
    mustWrite: true,
  })
})

test('a single host may be read-only unless the URL demands otherwise', () => {
  const mustWrite = (url: string) => readDatabaseServers(url).mustWrite
  assert.equal(mustWrite('postgres://u@/penny?host=/tmp/x'), false)
  assert.equal(mustWrite('postgres://db/penny?target_session_attrs=any'), false)
  assert.equal(mustWrite('postgres://db/penny?target_session_attrs=primary'), true)
})

test('a URL that cannot be used says why, and not its password', () => {
  for (const [url, reason] of [
    ['mysql://db/penny', /must begin with postgresql:/],
    ['postgresql://u:hunter2@db1,,db2/penny', /^Host 2 of 3 in DATABASE_URL is invalid\.$/],
    ['postgresql://u:hunter2@db1:x,db2/penny', /^Host 1 of 2/],
    [`postgresql://u:hunter2@${Array.from({ length: 17 }, (_, n) => `db${n}`)}/penny`, /17 hosts; the limit is 16/],
    ['postgresql://db1,db2/penny?target_session_attrs=standby', /target_session_attrs=standby is not supported/],
    ['postgresql:///penny?host=db1,db2', /^Several hosts go before the name/],
  ] as const) {
    assert.throws(
      () => readDatabaseServers(url),
      ({ message }: Error) => reason.test(message) && !message.includes('hunter2'),
    )
  }
})

test('a parameter is changed beside several hosts', () => {
  const changed = changeParameter(
    'postgresql://u:p@a:1,b:2/penny?options=-c%20x%3D1',
    'options',
    (old) => `${old} -c y=2`,
  )
  assert.equal(changed, 'postgresql://u:p@a:1,b:2/penny?options=-c+x%3D1+-c+y%3D2')
  assert.equal(
    changeParameter('postgresql://a/penny', 'options', (old) => `${old}`),
    'postgresql://a/penny?options=null',
  )
})
