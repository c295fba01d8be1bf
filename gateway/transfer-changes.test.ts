import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { keccak256, toHex } from 'viem'
import {
  createGatewayClient,
  type GatewayClient,
  type GatewayTransfer,
  type News,
} from '../src/settlement/gateway-client.ts'
import { atEnd } from '../test/support/at-end.ts'
import { startCircleGateway } from '../test/support/circle-gateway.ts'
import {
  account,
  ask,
  deposit,
  type GatewayBench,
  openBench,
  paymentBody,
  seller,
  settle,
  token,
  transferOf,
  untilBalance,
} from '../test/support/gateway.ts'
import { chainId } from '../test/support/sandbox-chain.ts'
import { terms } from '../test/support/signing.ts'
import { untilFits } from '../test/support/until.ts'

const payer = account('payer')
const changes = '/v1/x402/transfers?changedAfter='

function openGatewayClient(t: TestContext, url: string): GatewayClient {
  const gatewayClient = createGatewayClient({ url, token, domain: chainId })
  atEnd(t, () => gatewayClient.close())
  return gatewayClient
}

test('repeated polls report every payment to its end, with its proof, across a restart', async (t) => {
  const bench = await openBench(t)
  const first = await bench.start()
  await deposit(bench, payer, 1_000_000n)
  await untilBalance(first.url, payer.address, '1')
  const bodies = await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      paymentBody(bench.wallet, payer, { receiptHash: keccak256(toHex(`receipt ${index}`)) }),
    ),
  )
  const ids = await Promise.all(bodies.slice(0, 6).map((body) => settle(first.url, body)))
  const known = new Map<string, GatewayTransfer>()
  let cursor = await follow(openGatewayClient(t, first.url), undefined, known, ids)
  await first.stop()
  const { url } = await bench.start()
  await untilBalance(url, payer.address, '0.994')
  ids.push(...(await Promise.all(bodies.slice(6).map((body) => settle(url, body)))))
  const gatewayClient = openGatewayClient(t, url)
  cursor = await follow(gatewayClient, cursor, known, ids)
  for (const [index, id] of ids.entries()) {
    const transfer = known.get(id)!
    assert.deepEqual(transfer, await gatewayClient.transfer(id))
    assert.equal(transfer.nonce, bodies[index]!.paymentPayload.payload.authorization.nonce)
    assert.ok(transfer.receipt !== undefined && transfer.place !== undefined && transfer.transactionHash !== undefined)
  }
  const silence = await gatewayClient.news(cursor, [])
  assert.deepEqual(silence, {
    transfers: [],
    next: cursor,
    hasMore: false,
    isRestarted: false,
    lost: [],
    unanswered: [],
  })
  assert.deepEqual(bench.alarms, [])
})

/** Polls until all of them are completed. */
async function follow(
  gatewayClient: GatewayClient,
  start: string | undefined,
  known: Map<string, GatewayTransfer>,
  ids: readonly string[],
) {
  let cursor = start
  await untilFits(
    async () => {
      const news = await gatewayClient.news(cursor, [])
      cursor = news.next
      for (const transfer of news.transfers) known.set(transfer.id, transfer)
      return ids.map((id) => known.get(id)?.state)
    },
    (states) => states.every((state) => state === 'completed'),
  )
  return cursor
}

// A cursor that skips a number which is committed later loses that payment permanently: it would never be confirmed.
test('a change that commits late is not skipped by one that was made after it', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const [early, late] = [await storeTransfer(bench), await storeTransfer(bench)]
  const { nextCursor: start } = (await ask(url, changes)).body
  const gate = Promise.withResolvers<void>()
  const changed = Promise.withResolvers<void>()
  const slow = bench.database.transaction(async (connection) => {
    await connection.query(fail, [early])
    changed.resolve()
    await gate.promise
  })
  await changed.promise
  const quick = bench.database.query(fail, [late])
  // The second writer either waits for the first one or has committed: both must appear in the end.
  await Promise.race([quick, pause(200)])
  const between = (await ask(url, changes + start)).body
  gate.resolve()
  await Promise.all([slow, quick])
  const after = (await ask(url, changes + between.nextCursor)).body
  assert.deepEqual(idsOf([...between.transfers, ...after.transfers]), [early, late])
})

test('a continuous reader gets every change of many writers, in any order of commits', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const ids = await Promise.all(Array.from({ length: 60 }, () => storeTransfer(bench)))
  const heard = new Map<string, string>()
  let cursor = ''
  const hear = async () => {
    const { body } = await ask(url, `${changes}${cursor}&pageSize=7`)
    cursor = body.nextCursor
    for (const { id, status } of body.transfers) heard.set(id, status)
    return body.hasMore as boolean
  }
  let isWriting = true
  const reading = (async () => {
    while (isWriting || (await hear())) await hear()
  })()
  await Promise.all(
    [0, 1, 2].map(async (writer) => {
      for (let index = writer; index < ids.length; index += 3) {
        await bench.database.transaction(async (connection) => {
          await connection.query(fail, [ids[index]])
          await pause((index * 7) % 11)
          // Some change twice, some are rolled back and repeated.
          if (index % 5 === 0) await connection.query(reopen, [ids[index]])
        })
      }
    }),
  )
  isWriting = false
  await reading
  assert.deepEqual(
    ids.map((id) => heard.get(id)),
    ids.map((_, index) => (index % 5 === 0 ? 'received' : 'failed')),
  )
})

test('changes come in pages, in the order of change, of all or of one payer or payee', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const other = account('other').address.toLowerCase()
  const ids: string[] = []
  for (let index = 0; index < 7; index += 1) ids.push(await storeTransfer(bench, index % 3 === 0 ? other : undefined))
  const order = [...ids].reverse()
  for (const id of order) await bench.database.query(fail, [id])
  assert.deepEqual(await readAll(url, 'pageSize=3'), order)
  assert.deepEqual(await readAll(url, `pageSize=2&from=${other}`), [ids[6], ids[3], ids[0]])
  assert.deepEqual(await readAll(url, `pageSize=2&to=${seller.address}`), order)
  assert.deepEqual(await readAll(url, `to=${other}`), [])
  await bench.database.query(reopen, [order[0]])
  assert.deepEqual(await readAll(url, ''), [...order.slice(1), order[0]], 'what changes again moves to the end')
  await storeTransfer(bench)
  assert.equal((await readAll(url, '')).length, 7, 'acceptance is told by settle, not here')
})

test('a cursor of another gateway is refused, and the service reads from the beginning', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const id = await storeTransfer(bench)
  await bench.database.query(fail, [id])
  const { nextCursor } = (await ask(url, changes)).body
  const ahead = Buffer.from(nextCursor, 'base64url')
  ahead[23]! += 1
  const strange = ['1', 'x'.repeat(32), randomBytes(24).toString('base64url'), ahead.toString('base64url'), '%00']
  for (const cursor of strange) {
    const { status, body } = await ask(url, changes + cursor)
    assert.equal(status, 400, cursor)
    assert.match(body.message, /not a cursor of this gateway/)
  }
  assert.equal((await ask(url, `${changes}&status=failed`)).status, 400)
  assert.equal((await ask(url, `${changes}&pageSize=501`)).status, 400)
  assert.equal((await ask(url, changes, undefined, '')).status, 401)
  const news = await openGatewayClient(t, url).news(ahead.toString('base64url'), [])
  assert.deepEqual([idsOf(news.transfers), news.next, news.isRestarted], [[id], nextCursor, true])
})

test('overdue payments are queried, and those that the gateway lost are named', async (t) => {
  const bench = await openBench(t)
  const { url } = await bench.start()
  const [quiet, overdue, gone] = [await storeTransfer(bench), await storeTransfer(bench), randomUUID()]
  const open = [
    { id: quiet, isOverdue: false },
    { id: overdue, isOverdue: true },
    { id: gone, isOverdue: true },
  ]
  const news = await openGatewayClient(t, url).news(undefined, open)
  assert.deepEqual([idsOf(news.transfers), news.lost, news.unanswered], [[overdue], [gone], []])
  assert.equal((await transferOf(url, quiet)).status, 'received')
})

test('Circle’s gateway has no list of changes: each open payment is queried', async (t) => {
  const gateway = await startCircleGateway(t, terms)
  const gatewayClient = createGatewayClient({ url: gateway.url, domain: terms.gatewayDomain })
  atEnd(t, () => gatewayClient.close())
  const open = [
    { id: randomUUID(), isOverdue: false },
    { id: randomUUID(), isOverdue: true },
  ]
  const expected: Omit<News, 'lost'> = {
    transfers: [],
    next: undefined,
    hasMore: false,
    isRestarted: false,
    unanswered: [],
  }
  const { lost, ...news } = await gatewayClient.news(undefined, open)
  assert.deepEqual(news, expected)
  assert.deepEqual(lost.toSorted(), open.map(({ id }) => id).toSorted())
  await gatewayClient.news(undefined, [])
  assert.equal(gateway.calls.filter((call) => call === 'GET /v1/x402/supported').length, 1)
})

const fail = `update gateway.transfers set status = 'failed', failure = 'test' where id = $1`
const reopen = `update gateway.transfers set status = 'received', failure = null where id = $1`

/** A transfer that the worker does not touch. */
async function storeTransfer({ database }: GatewayBench, from = payer.address.toLowerCase()): Promise<string> {
  const id = randomUUID()
  await database.query(
    `insert into gateway.transfers (id, payer, payee, value, valid_after, valid_before, nonce, signature, retry_at)
     values ($1, $2, $3, 1000, 0, 0, $4, '0x', 'infinity')`,
    [id, from, seller.address.toLowerCase(), toHex(randomBytes(32))],
  )
  return id
}

async function readAll(url: string, parameters: string): Promise<string[]> {
  const ids: string[] = []
  for (let cursor = ''; ; ) {
    const { body } = await ask(url, `${changes}${cursor}&${parameters}`)
    ids.push(...idsOf(body.transfers))
    cursor = body.nextCursor
    if (!body.hasMore) return ids
  }
}

function idsOf(transfers: readonly { readonly id: string }[]): string[] {
  return transfers.map(({ id }) => id)
}
