import type { ServerResponse } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { disconnectSignal } from './disconnect.ts'

export type Sleep = (ms: number, signal: AbortSignal) => Promise<unknown>

export type SlowRefusalsOptions = {
  readonly sleep?: Sleep | undefined
  /** From 0 to 1. */
  readonly random?: (() => number) | undefined
}

const delayMsMin = 1_000
/** All connections of a caller together get about this many refusals per second while at most `growingMax` wait. */
const refusalsPerSecondMax = 50
/**
 * Above this number the delay no longer grows but falls to the minimum. A disconnect behind an unread body is noticed only after the
 * delay: longer delays would accumulate dead connections, each with megabytes in kernel buffers.
 */
const growingMax = 200

/** Resolves early, with an error, when the signal aborts. */
export const sleepUntilAborted: Sleep = (ms, signal) => setTimeout(ms, undefined, { signal, ref: false })

/**
 * Delays the refusals of callers that exceed their rate. A client that sends its next request when it has the answer to the last one is
 * slowed down. The delay grows with the number of connections of the caller that wait, so 200 connections get no more refusals a second
 * than 50 would. Delays are random: requests refused at the same moment would otherwise return at the same moment, again and again, and
 * block the event loop together.
 */
export class SlowRefusals {
  readonly #sleep: Sleep
  readonly #random: () => number
  readonly #waiting = new Map<string, number>()

  constructor({ sleep = sleepUntilAborted, random = Math.random }: SlowRefusalsOptions = {}) {
    this.#sleep = sleep
    this.#random = random
  }

  /** Waits before a refusal. `callers` are the names under which connections are counted: an account, a network. */
  async wait(callers: readonly string[], outgoing: ServerResponse): Promise<void> {
    const waiting = Math.max(...callers.map((caller) => this.#waiting.get(caller) ?? 0))
    const delayMs = waiting < growingMax ? delayMsMin * (1 + waiting / refusalsPerSecondMax) : delayMsMin
    for (const caller of callers) this.#add(caller, 1)
    try {
      // Ends early when the client disconnects.
      await this.#sleep(delayMs * (1 + this.#random() / 2), disconnectSignal(outgoing)).catch(() => {})
    } finally {
      for (const caller of callers) this.#add(caller, -1)
    }
  }

  #add(caller: string, change: number): void {
    const waiting = (this.#waiting.get(caller) ?? 0) + change
    if (waiting === 0) this.#waiting.delete(caller)
    else this.#waiting.set(caller, waiting)
  }
}
