import { setTimeout as delay } from 'node:timers/promises'

export type PaceClock = {
  /** Monotonic. */
  now(): number
  sleep(ms: number): Promise<unknown>
}

export const systemClock: PaceClock = { now: () => performance.now(), sleep: (ms) => delay(ms) }

type Kind = 'call' | 'logs'

/**
 * What Arc's public nodes sustain: two calls a second, and one `eth_getLogs` in two seconds. Bursts are refused, so the calls are spaced,
 * with a little room for the network's own variation.
 */
const restrainedMs: Readonly<Record<Kind, number>> = { call: 510, logs: 2_010 }
/** How far refusals at that pace can stretch it. */
const stretchMax = 8
/** Stretched spacing shrinks by half in this time. */
const easeMs = 5 * 60_000
/** A node without a refusal for this long is asked without pause again. */
const forgetMs = 60 * 60_000
const restMsMin = 1_000
const restMsMax = 30_000
const waitingMax = 1_000

type Turn = { readonly kind: Kind; readonly dueMs: number }

/**
 * Turns for the calls to one node. Calls are not delayed until the node refuses one because of its rate. Then all of them rest, and keep
 * to the pace of a public node afterwards: a limit that is answered by more calls becomes an outage.
 */
export class NodePace {
  readonly #clock: PaceClock
  readonly #waiting = new Set<Turn>()
  readonly #nextMs: Record<Kind, number> = { call: 0, logs: 0 }
  readonly #stretch: Record<Kind, number> = { call: 1, logs: 1 }
  #restsUntilMs = 0
  #refusedAtMs = Number.NEGATIVE_INFINITY
  #refusalsInARow = 0

  constructor(clock: PaceClock) {
    this.#clock = clock
  }

  /** When the node may be asked again after its refusal. */
  get restsUntilMs(): number {
    return this.#restsUntilMs
  }

  /**
   * Resolves when the call may be made. Of several waiting calls the one with the least slack left goes first, so that urgent ones
   * overtake others, and none waits forever.
   */
  async take(method: string, slackMs: number): Promise<void> {
    if (this.#waiting.size >= waitingMax) throw new Error(`${waitingMax} calls wait for the chain node already`)
    const turn: Turn = { kind: kindOf(method), dueMs: this.#clock.now() + slackMs }
    this.#waiting.add(turn)
    for (let ms = this.#waitMs(turn); ms > 0; ms = this.#waitMs(turn)) await this.#clock.sleep(Math.ceil(ms))
    this.#waiting.delete(turn)
    const now = this.#clock.now()
    this.#nextMs.call = now + this.#intervalMs('call')
    if (turn.kind === 'logs') this.#nextMs.logs = now + this.#intervalMs('logs')
  }

  /** Resolves when logs may be read after one other call. */
  async untilLogs(): Promise<void> {
    const waitMs = () => this.#nextMs.logs - this.#intervalMs('call') - this.#clock.now()
    for (let ms = waitMs(); ms > 0; ms = waitMs()) await this.#clock.sleep(Math.ceil(ms))
  }

  /** The node refused a call because of its rate. */
  refused(method: string, retryAfterMs = 0): void {
    const now = this.#clock.now()
    // Of several calls that were under way together, the first refusal counts.
    if (now < this.#restsUntilMs) return
    const kind = kindOf(method)
    if (this.#intervalMs(kind) > 0) {
      this.#stretch[kind] = Math.min((this.#intervalMs(kind) / restrainedMs[kind]) * 2, stretchMax)
    }
    this.#refusalsInARow += 1
    const restMs = Math.min(restMsMin * 2 ** (this.#refusalsInARow - 1), restMsMax)
    // With jitter: several processes may share the node's limit.
    this.#restsUntilMs = now + Math.max(restMs * (0.75 + Math.random() / 2), Math.min(retryAfterMs, restMsMax))
    this.#refusedAtMs = now
  }

  answered(): void {
    this.#refusalsInARow = 0
  }

  #waitMs(turn: Turn): number {
    const now = this.#clock.now()
    const own = this.#earliestMs(turn) - now
    if (own > 0) return own
    const isOvertaken = [...this.#waiting].some((other) => other.dueMs < turn.dueMs && this.#earliestMs(other) <= now)
    return isOvertaken ? this.#intervalMs('call') : 0
  }

  #earliestMs({ kind }: Turn): number {
    const next = kind === 'logs' ? Math.max(this.#nextMs.logs, this.#nextMs.call) : this.#nextMs.call
    return Math.max(this.#restsUntilMs, next)
  }

  #intervalMs(kind: Kind): number {
    const sinceMs = this.#clock.now() - this.#refusedAtMs
    if (sinceMs > forgetMs) {
      this.#stretch[kind] = 1
      return 0
    }
    return restrainedMs[kind] * Math.max(1, this.#stretch[kind] / 2 ** (sinceMs / easeMs))
  }
}

function kindOf(method: string): Kind {
  return method === 'eth_getLogs' ? 'logs' : 'call'
}
