import type { LimitWindow } from '../identity/api-keys.ts'

// A made-up month of a small team's traffic. Pure: the same random numbers give the same plan.

export type PlannedRequest = {
  readonly atMs: number
  /** Index in `plannedKeys`. */
  readonly key: number
  readonly model: string
  readonly stream: boolean
  readonly promptTokens: number
  readonly completionTokens: number
  readonly maxTokens: number
  readonly searches: number
  readonly firstTokenMs: number
  readonly totalMs: number
  readonly outcome: 'succeeded' | 'cancelled' | 'failed' | 'unknown_model'
}

export type PlannedKey = {
  readonly name: string
  readonly limit?: string
  readonly limitWindow?: Exclude<LimitWindow, 'lifetime'>
  /** Share of the traffic. */
  readonly weight: number
  readonly models: readonly string[]
}

/** The nightly batch reaches its limit, so the ledger refuses some of its requests. */
export const plannedKeys: readonly PlannedKey[] = [
  {
    name: 'Web app',
    limit: '20',
    limitWindow: 'month',
    weight: 5,
    models: ['gpt-5.6-terra', 'gpt-5.6-terra', 'gpt-5.6-luna'],
  },
  { name: 'Nightly batch', limit: '0.03', limitWindow: 'day', weight: 3, models: ['gpt-5.6-sol', 'gpt-5.6-terra'] },
  { name: 'Coding agent', weight: 2, models: ['gpt-5.3-codex-spark', 'gpt-6-astra'] },
]

const dayMs = 86_400_000
const hourMs = 3_600_000
const batchHour = 2

/** Ordered by time, all before `nowMs`. */
export function planTraffic(days: number, perDay: number, nowMs: number, random: () => number): PlannedRequest[] {
  const firstDay = Math.floor(nowMs / dayMs) * dayMs - (days - 1) * dayMs
  const plan = Array.from({ length: days }, (_, day) => {
    const start = firstDay + day * dayMs
    const isWeekend = [0, 6].includes(new Date(start).getUTCDay())
    // Traffic grows over the month, is lower on weekends, and varies.
    const count = perDay * (0.7 + (0.6 * day) / days) * (isWeekend ? 0.4 : 1.1) * (0.8 + 0.4 * random())
    return Array.from({ length: Math.max(1, Math.round(count)) }, () => planRequest(start, random))
  })
  return plan
    .flat()
    .filter(({ atMs, totalMs }) => atMs + totalMs < nowMs)
    .sort((one, other) => one.atMs - other.atMs)
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

function planRequest(start: number, random: () => number): PlannedRequest {
  const key = pickKey(random())
  const { models } = plannedKeys[key]!
  const isBatch = key === 1
  const hour = isBatch ? batchHour + random() : 7 + 6 * (random() + random())
  const completionTokens = Math.round(20 + 600 * random() ** 2)
  const firstTokenMs = Math.round(250 + 900 * random() ** 2)
  const chance = random()
  return {
    atMs: Math.floor(start + hour * hourMs),
    key,
    model: models[Math.floor(random() * models.length)]!,
    stream: !isBatch,
    promptTokens: Math.round(40 + 2_000 * random() ** 2),
    completionTokens,
    maxTokens: 2_000,
    searches: key === 0 && random() < 0.05 ? 1 : 0,
    firstTokenMs,
    totalMs: firstTokenMs + Math.round(completionTokens * (9 + 6 * random())),
    outcome: chance < 0.92 ? 'succeeded' : chance < 0.96 ? 'cancelled' : chance < 0.985 ? 'failed' : 'unknown_model',
  }
}

function pickKey(chance: number): number {
  let left = chance * plannedKeys.reduce((sum, { weight }) => sum + weight, 0)
  return plannedKeys.findIndex(({ weight }) => {
    left -= weight
    return left < 0
  })
}
