import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { terms } from '../../test/support/signing.ts'
import type { ServiceError } from '../errors.ts'
import { ShareUsedUpError } from '../fairness/shares.ts'
import { RateLimitedError } from '../fairness/token-buckets.ts'
import { InvalidApiKeyError } from '../identity/key-finder.ts'
import { InvalidJsonError } from '../inference/json-body.ts'
import type { Account } from '../ledger/accounts.ts'
import { NoBalanceError } from '../ledger/refusals.ts'
import { fromAtomic } from '../money/usdc.ts'
import { ContextLengthExceededError } from '../providers/upstream-errors.ts'
import { PaymentRequiredError } from '../x402/payment-required.ts'
import { x402Terms } from '../x402/terms.ts'
import { RestartingError } from './load.ts'
import { SlowRefusals } from './slow-refusals.ts'
import { UnpaidRequests } from './unpaid-requests.ts'

const key = (name: string, account = 'account') => ({ partition: 0, keyId: name, accountId: account })

/** A connection that has sent so many bytes. */
function open(bytes = 0, headers: Record<string, string> = {}) {
  const outgoing = Object.assign(new EventEmitter(), { destroyed: false, closed: false, writableFinished: false })
  const socket = { bytesRead: 0 }
  return {
    bytes,
    socket,
    incoming: { socket, headers } as unknown as IncomingMessage,
    outgoing: outgoing as unknown as ServerResponse,
    network: '192.0.2.1',
  }
}

function begin(spendable = 0n) {
  const findAccount = async () => ({ spendable, held: 0n, extended: 0n }) as Account
  let nowMs = 0
  const sleepers: { readonly untilMs: number; readonly wake: () => void }[] = []
  const sleep = (ms: number, signal: AbortSignal) =>
    new Promise<void>((wake, leave) => {
      sleepers.push({ untilMs: nowMs + ms, wake })
      signal.addEventListener('abort', leave)
    })
  const slowRefusals = new SlowRefusals({ sleep, random: () => 0 })
  const unpaid = new UnpaidRequests({ now: () => nowMs, findAccount, sleep, slowRefusals })
  return {
    unpaid,
    async pass(ms: number) {
      nowMs += ms
      for (const { untilMs, wake } of sleepers) if (untilMs <= nowMs) wake()
      await turn()
    },
    async refuse(who: ReturnType<typeof key>, bytes = 0, error: unknown = new InvalidJsonError('no')) {
      const connection = open()
      const request = await unpaid.admit(who, connection)
      connection.socket.bytesRead = bytes
      request.refused(error)
    },
    /** What became of it so far. */
    ask(who: ReturnType<typeof key>) {
      const asked = { state: 'waiting', request: undefined as Awaited<ReturnType<UnpaidRequests['admit']>> | undefined }
      unpaid.admit(who, open()).then(
        (request) => Object.assign(asked, { state: 'admitted', request }),
        (error: unknown) => Object.assign(asked, { state: (error as ServiceError).code }),
      )
      return asked
    },
  }
}

test('above a burst of 600, then 50 a second, refused requests of a key take turns; those that would wait longer than a second are refused', async () => {
  const { unpaid, refuse, ask, pass } = begin()
  for (let count = 0; count < 600; count += 1) await refuse(key('a'))
  const asked = Array.from({ length: 60 }, () => ask(key('a')))
  await pass(500)
  assert.equal(asked.filter(({ state }) => state === 'admitted').length, 25)
  // The first refusal comes after a second, the tenth 0.18 s later.
  await pass(700)
  assert.deepEqual(
    Map.groupBy(asked, ({ state }) => state)
      .entries()
      .map(([state, all]) => [state, all.length])
      .toArray(),
    [
      ['admitted', 50],
      ['rate_limited', 10],
    ],
  )
  await assert.doesNotReject(unpaid.admit(key('b'), open()), 'another key of the account goes on')
})

test('a 402 that asks a wallet to pay over x402 counts as a refusal: a flood of them is refused at the same rate', async () => {
  const { refuse, ask, pass } = begin()
  const unpaid = new PaymentRequiredError(x402Terms(terms, 'http://penny'), fromAtomic(100n), fromAtomic(0n))
  for (let count = 0; count < 600; count += 1) await refuse(key('network'), 0, unpaid)
  const asked = Array.from({ length: 60 }, () => ask(key('network')))
  await pass(1_200)
  assert.equal(asked.filter(({ state }) => state === 'rate_limited').length, 10)
})

test('requests that are paid for, and refusals that are not the client’s, cost no token', async () => {
  const { refuse, ask, pass } = begin()
  for (let count = 0; count < 1_000; count += 1) await refuse(key('a'), 0, new RestartingError())
  for (let count = 0; count < 600; count += 1) await refuse(key('a'))
  // Deposits, or corrects its model: it is held up until the first token is there, and no more.
  await pass(20)
  for (let count = 0; count < 1_000; count += 1) {
    const asked = ask(key('a'))
    await pass(20)
    assert.equal(asked.state, 'admitted')
    asked.request!.paid()
  }
  const crowd = Array.from({ length: 200 }, () => ask(key('a')))
  await turn()
  assert.ok(crowd.every(({ state }) => state === 'admitted'))
})

test('a request that the model refuses counts like a refusal, although a hold was placed', async () => {
  const { unpaid, ask, pass } = begin()
  for (let count = 0; count < 600; count += 1) {
    const request = await unpaid.admit(key('a'), open())
    request.paid()
    request.refusedByModel(new ContextLengthExceededError('too long'))
  }
  const asked = Array.from({ length: 60 }, () => ask(key('a')))
  await pass(1_200)
  assert.equal(asked.filter(({ state }) => state === 'rate_limited').length, 10)
})

test('clients that retry while their account is at its share are not held up', async () => {
  const { refuse, ask } = begin()
  const usedUp = new ShareUsedUpError('requests in progress', 16, 60)
  for (let count = 0; count < 600; count += 1) await refuse(key('a'), 0, usedUp)
  const asked = ask(key('a'))
  await turn()
  assert.equal(asked.state, 'admitted')
})

test('a refused body counts by its size, and a debt is paid off within seconds', async () => {
  const { refuse, ask, pass } = begin()
  for (let count = 0; count < 29; count += 1) await refuse(key('a'), 1_300_000)
  assert.equal(ask(key('a')).state, 'waiting')
  for (let count = 0; count < 100; count += 1) await refuse(key('b', 'other'), 0, new Error('left')).catch(() => {})
  const before = ask(key('b', 'other'))
  await turn()
  assert.equal(before.state, 'admitted', 'errors of ours are not counted while the client is there')
  await pass(7_000)
  const after = ask(key('a'))
  await turn()
  assert.equal(after.state, 'admitted')
})

test('many keys of one account share a rate, which never holds up a key that was not refused itself', async () => {
  const { refuse, ask } = begin()
  for (let each = 0; each < 18; each += 1) for (let count = 0; count < 100; count += 1) await refuse(key(`key ${each}`))
  const guilty = ask(key('key 0'))
  const innocent = ask(key('innocent'))
  const stranger = ask(key('stranger', 'another account'))
  await turn()
  assert.deepEqual([guilty.state, innocent.state, stranger.state], ['waiting', 'admitted', 'admitted'])
})

test('many accounts of one network share a rate, which never holds up a key that was not refused itself', async () => {
  const { refuse, ask } = begin()
  for (let each = 0; each < 72; each += 1)
    for (let count = 0; count < 50; count += 1) await refuse(key(`${each}`, `${each}`))
  const guilty = ask(key('0', '0'))
  const innocent = ask(key('innocent', 'another account'))
  await turn()
  assert.deepEqual([guilty.state, innocent.state], ['waiting', 'admitted'])
})

test('refusals of unknown keys, a burst of 600, then 50 a second for a network, are not delayed; further ones are', async () => {
  const { unpaid, pass } = begin()
  const told: string[] = []
  const refuseStranger = (error: unknown, name: string) =>
    unpaid.beforeRefusal(error, open()).then(() => {
      told.push(name)
    })
  for (let count = 0; count < 600; count += 1) await refuseStranger(new InvalidApiKeyError(), 'at once')
  void refuseStranger(new InvalidApiKeyError(), 'unknown key')
  void refuseStranger(new RateLimitedError('account', 30, 100), 'above its rate')
  await refuseStranger(new RestartingError(), 'not the client’s fault')
  assert.deepEqual(told.slice(600), ['not the client’s fault'])
  await pass(1_100)
  assert.deepEqual(told.slice(601).sort(), ['above its rate', 'unknown key'])
})

test('quotes are answered in a burst of 600, then 50 a second for a key', async () => {
  const { unpaid, pass } = begin()
  const told: string[] = []
  const quote = () =>
    unpaid
      .duringFree(key('a'), open(), async () => told.push('quoted'))
      .catch((error: unknown) => {
        told.push(/^ServiceError: More than 50 quotes /.test(String(error)) ? 'refused' : String(error))
      })
  const quotes = Array.from({ length: 700 }, quote)
  await turn()
  assert.equal(told.length, 600)
  await pass(2_000)
  await Promise.all(quotes)
  assert.equal(told.filter((each) => each === 'quoted').length, 650)
  assert.equal(told.filter((each) => each === 'refused').length, 50)
})

test('a quoted body counts by its size', async () => {
  const { unpaid, pass } = begin()
  const quote = async (bytes: number) => {
    const connection = open()
    return unpaid.duringFree(key('a'), connection, async () => {
      connection.socket.bytesRead = bytes
    })
  }
  for (let count = 0; count < 10; count += 1) await quote(64 * 64 * 1024)
  const further = quote(0).catch((error: unknown) => error)
  await turn()
  await pass(1_100)
  assert.match(String(await further), /^ServiceError: More than 50 quotes /)
})

test('a client that leaves while it waits ends its wait', async () => {
  const { unpaid, refuse } = begin()
  for (let count = 0; count < 32; count += 1) await refuse(key('a'), count === 31 ? 10_000_000 : 1_200_000)
  const connection = open()
  const waiting = unpaid.admit(key('a'), connection)
  connection.outgoing.emit('close')
  await assert.rejects(waiting, { code: 'rate_limited', message: /were refused or cancelled before a hold/ })
})

test('without money, and after a refusal within ten seconds, a large body is refused before it is read', async () => {
  const { unpaid, refuse, pass } = begin()
  const large = { 'content-length': '65537' }
  const mayRead = async (headers: Record<string, string>) => (await unpaid.admit(key('a'), open(0, headers))).mayRead()
  await assert.doesNotReject(mayRead(large), 'no refusal before')
  await refuse(key('a'))
  await assert.rejects(mayRead(large), NoBalanceError)
  await assert.rejects(mayRead({ 'transfer-encoding': 'chunked' }), NoBalanceError, 'a length that is not stated')
  await assert.doesNotReject(mayRead({ 'content-length': '65536' }), 'short ones get a refusal with their quote')
  await assert.doesNotReject(mayRead({ ...large, 'idempotency-key': 'k' }), 'its answer may be paid for')
  await assert.doesNotReject(mayRead({ ...large, 'x-stainless-retry-count': '1' }))
  await assert.rejects(mayRead({ ...large, 'x-stainless-retry-count': '0' }), NoBalanceError, 'a first attempt')
  await pass(10_000)
  await assert.doesNotReject(mayRead(large), 'after ten seconds')
  const rich = begin(1n)
  await rich.refuse(key('a'))
  const request = await rich.unpaid.admit(key('a'), open(0, large))
  await assert.doesNotReject(request.mayRead(), 'with money')
})

test('a network gets a burst of 2,000 pages and files, then 50 a second; further ones are refused, slowly', async () => {
  const { unpaid, pass } = begin()
  for (let count = 0; count < 2_000; count += 1) await unpaid.admitVisitor(open())
  const told: string[] = []
  const visit = (connection: ReturnType<typeof open>, name: string) =>
    unpaid.admitVisitor(connection).then(
      () => told.push(`${name}: served`),
      (error: ServiceError) => told.push(`${name}: ${error.code}`),
    )
  void visit(open(), 'one more')
  await visit({ ...open(), network: '192.0.2.2' }, 'another network')
  assert.deepEqual(told, ['another network: served'])
  await assert.doesNotReject(unpaid.admit(key('a'), open()), 'requests with a key are not counted')
  await pass(1_000)
  assert.deepEqual(told, ['another network: served', 'one more: rate_limited'])
  for (let count = 0; count < 50; count += 1) await unpaid.admitVisitor(open())
})
