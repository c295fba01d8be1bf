export type Job = {
  /** Runs it now; waits for the run under way instead, if there is one. */
  now(): Promise<void>
  /** Resolves when the run under way is over; there will be no other. */
  stop(): Promise<void>
}

export type Pace = {
  readonly busyMs: number
  /** While nothing is under way only one turn in so many is used. */
  readonly idleTurns: number
  /** So many turns after something was under way all are used; also at first. */
  readonly busyTurns: number
}

/**
 * The same, at two paces: work that returns true has something under way. A process that finds nothing should not look often: each
 * look is a round of statements and calls.
 */
export function everyAtPace(pace: Pace, work: () => Promise<boolean>, onError: (error: unknown) => void): Job {
  let [turn, busyTurns] = [0, pace.busyTurns]
  const look = async () => {
    turn += 1
    if (busyTurns === 0 && turn % pace.idleTurns !== 0) return
    busyTurns = Math.max(0, busyTurns - 1)
    if (await work()) busyTurns = pace.busyTurns
  }
  return every(pace.busyMs, look, onError)
}

/** Repeats some work, one run at a time. What it throws is told and forgotten: the next run is its second chance. */
export function every(ms: number, work: () => Promise<unknown>, onError: (error: unknown) => void): Job {
  let running: Promise<void> | undefined
  let stopped = false
  const now = (): Promise<void> => {
    running ??= (stopped ? Promise.resolve() : work().then(() => {}, onError)).finally(() => {
      running = undefined
    })
    return running
  }
  const timer = setInterval(() => void now(), ms)
  return {
    now,
    async stop() {
      stopped = true
      clearInterval(timer)
      await running
    },
  }
}
