import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { TokenBuckets } from '../fairness/token-buckets.ts'
import { networkOf } from './visitor.ts'

/** Wasted connections per network: a burst of 100, then 20 per second. */
const rate = { burstMax: 100, perSecond: 20 }
const turnMs = 1_000 / rate.perSecond
/** Held connections that are admitted per turn when their network is within its rate again. */
const letInMax = 10
const heldPerNetworkMax = 100
const heldMax = 1_000

type Held = { readonly socket: Socket; readonly serve: () => void }

/**
 * Delays new connections from networks that waste them. A connection is wasted when it closes without a paid request, and its last
 * request, if any, was refused or not answered. Opening one, sending part of a large body and disconnecting costs the client nothing,
 * but costs the service more than a millisecond: socket, parser, key lookup, and an answer that is never read. The server notices the
 * disconnect only behind the unread body.
 *
 * Above its rate, a network's new connections are held: accepted, but not read. They are admitted oldest first. When too many are held,
 * the oldest is reset: its client has waited longest and has most likely disconnected. Open connections are never delayed, so customers
 * behind the same address who keep their connections open are not affected.
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

  /** Call it once, before the server listens. Not behind a proxy: there every connection comes from the proxy. */
  guard(server: Server): void {
    const [serve] = server.listeners('connection') as [(socket: Socket) => void]
    server.removeListener('connection', serve)
    // Nothing is read before `resume`. Set here because `http.createServer` does not pass this option on.
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

  /** A hold was placed for a request on this connection, so it is not wasted, even if the client disconnects before the answer. */
  paid(socket: Socket): void {
    this.#paid.add(socket)
  }

  /** Admits all held connections and holds no more. Call it before the server drains: held requests would be lost. */
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

  /** Removes and returns the oldest held connection. */
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
