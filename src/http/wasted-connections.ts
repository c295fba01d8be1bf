import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { TokenBuckets } from './token-buckets.ts'
import { networkOf } from './visitor.ts'

/** Wasted connections of one network: 100 at once and 20 per second. */
const rate = { burstMax: 100, perSecond: 20 }
const turnMs = 1_000 / rate.perSecond
/** Held connections that are let in per turn when their network is within its rate again. */
const letInMax = 10
const heldPerNetworkMax = 100
const heldMax = 1_000

type Held = { readonly socket: Socket; readonly serve: () => void }

/**
 * Delays new connections from networks that waste them. A connection is wasted when it closes, nothing was paid on it, and its last
 * request, if it had one, was refused or not answered. To open one, send part of a large body and hang up costs the client nothing, and
 * costs the service more than a millisecond: socket, parser, look-up of the key, and an answer that nobody reads. The server notices the
 * hang-up only behind the unread body.
 *
 * Above its rate, a network's new connections are held: accepted, and not read. One is let in per turn, the oldest first. When too many
 * are held, the oldest is reset: its client has waited longest, and has most likely left. Open connections are never delayed, so a
 * customer behind the same address who keeps a connection open is not affected.
 */
export class WastedConnections {
  readonly #wasted: TokenBuckets
  readonly #held = new Map<string, Held[]>()
  readonly #paid = new WeakSet<Socket>()
  readonly #lastAnswers = new WeakMap<Socket, ServerResponse>()
  #heldTotal = 0
  #isStopped = false
  #turns: NodeJS.Timeout | undefined

  /** `now` in milliseconds. */
  constructor({ now }: { readonly now: () => number }) {
    this.#wasted = new TokenBuckets({ ...rate, now })
  }

  /** Call it once, before the server listens. Not behind a proxy: there every connection is the proxy's. */
  guard(server: Server): void {
    const [serve] = server.listeners('connection') as [(socket: Socket) => void]
    server.removeListener('connection', serve)
    // An option of `net.createServer` that `http.createServer` does not pass on: nothing is read before `resume`.
    Object.assign(server, { pauseOnConnect: true })
    server.on('connection', (socket: Socket) => {
      const network = networkOf(socket.remoteAddress ?? '')
      this.#enter(network, {
        socket,
        serve: () => {
          socket.once('close', () => this.#closed(network, socket))
          serve.call(server, socket)
          socket.resume()
        },
      })
    })
    server.on('request', ({ socket }: IncomingMessage, outgoing) => this.#lastAnswers.set(socket, outgoing))
  }

  /** Money is held for a request on this connection: it is not wasted, also when its client leaves before the answer. */
  paid(socket: Socket): void {
    this.#paid.add(socket)
  }

  /** Lets in what is held, and holds nothing more. Call it before the server drains: a held request would be lost. */
  stop(): void {
    this.#isStopped = true
    for (const network of [...this.#held.keys()]) {
      for (let held = this.#shift(network); held !== undefined; held = this.#shift(network)) held.serve()
    }
  }

  #enter(network: string, held: Held): void {
    const waiting = this.#held.get(network)
    if (this.#isStopped || (waiting === undefined && this.#wasted.has(network))) {
      held.serve()
      return
    }
    if (waiting !== undefined && waiting.length >= heldPerNetworkMax) this.#shift(network)?.socket.resetAndDestroy()
    else if (this.#heldTotal >= heldMax) this.#shift([...this.#held.keys()][0]!)?.socket.resetAndDestroy()
    held.socket.on('error', () => {})
    const others = this.#held.get(network)
    if (others === undefined) this.#held.set(network, [held])
    else others.push(held)
    this.#heldTotal += 1
    this.#turns ??= setInterval(() => this.#takeTurn(), turnMs)
  }

  #takeTurn(): void {
    for (const network of [...this.#held.keys()]) {
      const count = this.#wasted.has(network) ? letInMax : 1
      for (let letIn = 0; letIn < count; letIn += 1) this.#shift(network)?.serve()
    }
  }

  /** Takes out the one that is held longest. */
  #shift(network: string): Held | undefined {
    const waiting = this.#held.get(network)
    const held = waiting?.shift()
    if (held === undefined) return undefined
    this.#heldTotal -= 1
    if (waiting?.length === 0) this.#held.delete(network)
    if (this.#heldTotal === 0) {
      clearInterval(this.#turns)
      this.#turns = undefined
    }
    return held
  }

  #closed(network: string, socket: Socket): void {
    const answer = this.#lastAnswers.get(socket)
    const isAnswered = answer?.headersSent === true && answer.statusCode < 400
    if (!isAnswered && !this.#paid.has(socket)) this.#wasted.spend(network)
  }
}
