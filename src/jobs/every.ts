export type Job = {
  /** Runs it now; waits for the run under way instead, if there is one. */
  now(): Promise<void>
  /** Resolves when the run under way is over; there will be no other. */
  stop(): Promise<void>
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
