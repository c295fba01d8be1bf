import { createConnection, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { beChild } from './child.ts'

/**
 * The load of all comparisons, in its own process: keep-alive connections, each of which sends its next request after the previous
 * answer. Uses plain sockets, so that it takes little CPU time from what it measures.
 */
export type LoadOrder = {
  /** Of several, each connection keeps to one. */
  readonly url: string
  /** One set for each account. A connection uses its share of them in turn; if there are fewer than connections, they are shared. */
  readonly headers: readonly Readonly<Record<string, string>>[]
  readonly body: string
  readonly connections: number
  /** The connections are opened one after another over this time; all at once by default. */
  readonly rampMs?: number | undefined
  /** The load ends after this time, or after this many requests. */
  readonly durationMs: number
  readonly requestsMax?: number | undefined
}

export type LoadReport = {
  readonly requests: number
  readonly failures: number
  /** The message of the first failure. */
  readonly failure: string | undefined
  readonly seconds: number
  readonly latency: Spread
  /** From asking to the first bytes of the answer's body. */
  readonly firstByte: Spread
  /** From one piece of the body to the next, in streams. */
  readonly gap: Spread
}

export type Spread = { readonly p50: number; readonly p99: number; readonly max: number }

type Tally = {
  readonly latencies: number[]
  readonly firstBytes: number[]
  readonly gaps: number[]
  failures: number
  failure: string | undefined
  started: number
}

const samplesMax = 2_000_000
const headEnd = Buffer.from('\r\n\r\n')
const lastChunk = Buffer.from('0\r\n\r\n')

beChild<object, object, LoadOrder, LoadReport>(async () => ({ ready: {}, answer: run }))

async function run(order: LoadOrder): Promise<LoadReport> {
  const tally: Tally = { latencies: [], firstBytes: [], gaps: [], failures: 0, failure: undefined, started: 0 }
  const startedMs = performance.now()
  const untilMs = startedMs + order.durationMs
  const goesOn = () => performance.now() < untilMs && tally.started < (order.requestsMax ?? Number.POSITIVE_INFINITY)
  await Promise.all(Array.from({ length: order.connections }, (_, index) => work(order, index, tally, goesOn)))
  return {
    requests: tally.latencies.length,
    failures: tally.failures,
    failure: tally.failure,
    seconds: (performance.now() - startedMs) / 1000,
    latency: spread(tally.latencies),
    firstByte: spread(tally.firstBytes),
    gap: spread(tally.gaps),
  }
}

async function work(order: LoadOrder, index: number, tally: Tally, goesOn: () => boolean): Promise<void> {
  const url = new URL(order.url)
  const own = order.headers.filter((_, place) => (place - index) % order.connections === 0)
  const used = own.length > 0 ? own : [order.headers[index % order.headers.length]!]
  const requests = used.map((headers) => render(url, headers, order.body))
  if (order.rampMs !== undefined) await sleep((order.rampMs * index) / order.connections)
  while (goesOn()) {
    const socket = createConnection({ host: url.hostname, port: Number(url.port), noDelay: true })
    await exchange(socket, requests, tally, goesOn)
    socket.destroy()
  }
}

function render(url: URL, headers: Readonly<Record<string, string>>, body: string): Buffer {
  const lines = Object.entries({ 'content-type': 'application/json', ...headers }).map(
    ([name, value]) => `${name}: ${value}`,
  )
  const length = `content-length: ${Buffer.byteLength(body)}`
  return Buffer.from([`POST ${url.pathname} HTTP/1.1`, `host: ${url.host}`, ...lines, length, '', body].join('\r\n'))
}

/** Request after request on one connection, until the load is over or the connection is. */
function exchange(socket: Socket, requests: readonly Buffer[], tally: Tally, goesOn: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    let sent = 0
    let askedMs = 0
    let lastMs = 0
    let head: Head | undefined
    let received: Buffer = Buffer.alloc(0)
    let bodyBytes = 0
    let last: Buffer = Buffer.alloc(0)
    let isOver = false
    const ask = () => {
      if (!goesOn()) {
        isOver = true
        return resolve()
      }
      tally.started += 1
      askedMs = performance.now()
      lastMs = 0
      head = undefined
      received = Buffer.alloc(0)
      bodyBytes = 0
      socket.write(requests[sent++ % requests.length]!)
    }
    const fail = (why: string) => {
      if (isOver) return
      isOver = true
      tally.failures += 1
      tally.failure ??= why.slice(0, 300)
      resolve()
    }
    socket.once('connect', ask)
    socket.on('error', (error) => fail(String(error)))
    socket.on('close', () => fail('the connection was closed'))
    socket.on('data', (data: Buffer) => {
      let piece = data
      if (head === undefined) {
        received = received.length === 0 ? data : Buffer.concat([received, data])
        const end = received.indexOf(headEnd)
        if (end === -1) return
        head = readHead(received.toString('latin1', 0, end))
        piece = received.subarray(end + headEnd.length)
        if (head.status !== 200) return fail(`${received.toString('utf8')}`)
      }
      if (piece.length === 0) return
      const nowMs = performance.now()
      if (bodyBytes === 0) note(tally.firstBytes, nowMs - askedMs)
      else note(tally.gaps, nowMs - lastMs)
      lastMs = nowMs
      bodyBytes += piece.length
      last =
        piece.length >= lastChunk.length
          ? piece.subarray(-lastChunk.length)
          : Buffer.concat([last, piece]).subarray(-lastChunk.length)
      const whole = head.length === undefined ? last.equals(lastChunk) : bodyBytes >= head.length
      if (!whole) return
      note(tally.latencies, nowMs - askedMs)
      ask()
    })
  })
}

type Head = { readonly status: number; readonly length: number | undefined }

function readHead(text: string): Head {
  const length = /^content-length: *(\d+)/im.exec(text)?.[1]
  return { status: Number(text.slice(9, 12)), length: length === undefined ? undefined : Number(length) }
}

function note(samples: number[], value: number): void {
  if (samples.length < samplesMax) samples.push(value)
}

function spread(samples: number[]): Spread {
  const sorted = Float64Array.from(samples).sort()
  const at = (share: number) =>
    Number((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(3))
  return { p50: at(0.5), p99: at(0.99), max: at(1) }
}
