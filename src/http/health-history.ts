import type { Standing } from '../observe/outcomes.ts'

/** State of the parts of the service at one moment. */
export type Health = {
  readonly isReady: boolean
  readonly model: Standing | 'off'
  readonly search: Standing | 'off'
  readonly chain: Standing
  /** Response time of the database; undefined when it did not answer. */
  readonly databaseMs: number | undefined
}

type HealthSlot = Health & { readonly start: Date }

const slotMs = 5 * 60_000
const slotsMax = (24 * 60 * 60_000) / slotMs

/**
 * The last 24 hours of this node in slots of five minutes, in memory. A slot keeps its worst sample, so that a short outage stays
 * visible. A slot is missing when the node did not run.
 */
export class HealthHistory {
  #slots: readonly HealthSlot[] = []

  record(health: Health, atMs: number): void {
    const start = new Date(Math.floor(atMs / slotMs) * slotMs)
    const last = this.#slots.at(-1)
    if (last?.start.getTime() === start.getTime())
      this.#slots = [...this.#slots.slice(0, -1), { ...worseOf(last, health), start }]
    else this.#slots = [...this.#slots, { ...health, start }].slice(-slotsMax)
  }

  get slots(): readonly HealthSlot[] {
    return this.#slots
  }
}

function worseOf(one: Health, other: Health): Health {
  const isSlow = one.databaseMs === undefined || other.databaseMs === undefined
  return {
    isReady: one.isReady && other.isReady,
    model: worseStanding(one.model, other.model),
    search: worseStanding(one.search, other.search),
    chain: worseStanding(one.chain, other.chain),
    databaseMs: isSlow ? undefined : Math.max(one.databaseMs, other.databaseMs),
  }
}

const order = ['off', 'unused', 'working', 'failing'] as const

function worseStanding<S extends Standing | 'off'>(one: S, other: S): S {
  return order.indexOf(one) >= order.indexOf(other) ? one : other
}
