import { setTimeout as sleep } from 'node:timers/promises'

const pauseMsMin = 20
const pauseMsMax = 500

/** Retries `work` with backoff while `isRetried` accepts its error. `tries` counts from 1. */
export async function retry<Result>(
  work: () => Promise<Result>,
  isRetried: (error: unknown, tries: number) => boolean,
): Promise<Result> {
  let pauseMs = pauseMsMin
  for (let tries = 1; ; tries += 1) {
    try {
      return await work()
    } catch (error) {
      if (!isRetried(error, tries)) throw error
      await sleep(pauseMs)
      pauseMs = Math.min(pauseMs * 2, pauseMsMax)
    }
  }
}
