import type { PaceClock } from '../../src/chain/pace.ts'

export type VirtualClock = PaceClock & {
  /** One task ends: the others no longer wait for it. */
  leave(): void
  /** Runs work while all other tasks have not begun. */
  only<Result>(work: () => Promise<Result>): Promise<Result>
}

/** Time passes only while all tasks sleep; then the first of them wakes up. */
export function virtualClock(tasks: number): VirtualClock {
  let [nowMs, running] = [0, tasks]
  let sleepers: { readonly atMs: number; readonly wake: () => void }[] = []
  const pass = () => {
    if (sleepers.length === 0 || sleepers.length < running) return
    const next = sleepers.reduce((one, other) => (other.atMs < one.atMs ? other : one))
    sleepers = sleepers.filter((sleeper) => sleeper !== next)
    nowMs = Math.max(nowMs, next.atMs)
    next.wake()
  }
  return {
    now: () => nowMs,
    sleep(ms) {
      const { promise, resolve } = Promise.withResolvers<void>()
      sleepers.push({ atMs: nowMs + ms, wake: resolve })
      pass()
      return promise
    },
    leave() {
      running -= 1
      pass()
    },
    async only(work) {
      const others = running
      running = 1
      const result = await work()
      running = others
      return result
    },
  }
}
