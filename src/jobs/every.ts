export type Job = {
  /** Runs the job now, or waits for the current run. */
  now(): Promise<void>
  /** There is new work: runs the job now, and once more if it was running, because that run may have looked before. */
  wake(): void
  /** Resolves when the current run has ended. No other run follows. */
  stop(): Promise<void>
}

export type Pace = {
  readonly busyMs: number
  /** While idle, only one in this many turns does work. */
  readonly idleTurns: number
  /** After the work returned true, and at the start, this many turns run at the busy pace. */
  readonly busyTurns: number
}

/**
 * Like `every`, at two paces. Work returns true while it has something in progress. An idle process should poll rarely: each poll
 * is a round of statements and calls.
 */
export function everyAtPace(pace: Pace, work: () => Promise<boolean>, onError: (error: unknown) => void): Job {
  let [turn, busyTurns] = [0, pace.busyTurns]
  let isWoken = false
  const poll = async () => {
    turn += 1
    if (isWoken) busyTurns = Math.max(busyTurns, 1)
    isWoken = false
    if (busyTurns === 0 && turn % pace.idleTurns !== 0) return
    busyTurns = Math.max(0, busyTurns - 1)
    if (await work()) busyTurns = pace.busyTurns
  }
  const job = every(pace.busyMs, poll, onError)
  return {
    ...job,
    wake() {
      isWoken = true
      job.wake()
    },
  }
}

/** Repeats work, one run at a time. Errors go to `onError`; the next run is the retry. `firstMs` adds an early first run. */
export function every(
  ms: number,
  work: () => Promise<unknown>,
  onError: (error: unknown) => void,
  firstMs?: number,
): Job {
  let running: Promise<void> | undefined
  let [stopped, isWoken] = [false, false]
  const now = (): Promise<void> => {
    running ??= (stopped ? Promise.resolve() : work().then(() => {}, onError)).finally(() => {
      running = undefined
      if (isWoken) wake()
    })
    return running
  }
  const wake = () => {
    isWoken = running !== undefined
    if (!isWoken && !stopped) void now()
  }
  const timer = setInterval(() => void now(), ms)
  const first = firstMs === undefined ? undefined : setTimeout(() => void now(), firstMs)
  return {
    now,
    wake,
    async stop() {
      stopped = true
      clearInterval(timer)
      clearTimeout(first)
      await running
    },
  }
}
