import assert from 'node:assert/strict'
import { setTimeout as pause } from 'node:timers/promises'
import { inspect } from 'node:util'

// Soon at first, then less often: a look is often a query and a call of the chain, and many tests wait at the same time.
const pollMsMin = 20
const pollMsMax = 100
const pollGrowth = 1.25
// A process that was killed and is started again takes a minute on a machine that does ten other things.
const fitMsMax = 240_000

type Look<Found> = () => Promise<Found | undefined | false> | Found | undefined | false

/** Looks until there is something to see. The test's own time-out is the limit. */
export async function until<Found>(look: Look<Found>): Promise<Found> {
  for (let pauseMs = pollMsMin; ; pauseMs = Math.min(pauseMs * pollGrowth, pollMsMax)) {
    const found = await look()
    if (found !== undefined && found !== false) return found as Found
    await pause(pauseMs)
  }
}

/** Asks until the answer fits; fails when it never does. A server that is away, as one that was killed is, is asked again. */
export async function untilFits<Value>(
  question: () => Promise<Value>,
  fits: (value: Value) => boolean,
): Promise<Value> {
  const deadline = Date.now() + fitMsMax
  for (let pauseMs = pollMsMin; ; pauseMs = Math.min(pauseMs * pollGrowth, pollMsMax)) {
    const [answer] = await Promise.allSettled([question()])
    if (answer.status === 'fulfilled' && fits(answer.value)) return answer.value
    if (answer.status === 'rejected' && !isAway(answer.reason)) throw answer.reason
    if (Date.now() > deadline) assert.fail(`still ${inspect(answer)}`)
    await pause(pauseMs)
  }
}

function isAway(error: unknown): boolean {
  return error instanceof TypeError && error.message === 'fetch failed'
}
