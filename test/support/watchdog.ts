import { appendFileSync } from 'node:fs'
import { after, afterEach, beforeEach } from 'node:test'

// Loaded into the process of every test file. `node --test` waits without end for a process that has run its tests and does
// not exit, and for one whose test hangs. This ends such a process alone, long before the whole run is stopped, and says why.

/** Services are stopped after the last test. */
const lingerMsMax = Number(process.env.TEST_LINGER_MS ?? 120_000)
/** Four times what the longest file takes on two loaded cores: a slow machine must not fail the run. */
const fileMsMax = 40 * 60_000
const isLong = process.env.TEST_IS_LONG === '1'

// A long form audits at its end what it has written, for as long as that takes.
if (!isLong) {
  const running = new Set<string>()
  beforeEach((t) => void running.add(t.fullName))
  afterEach((t) => void running.delete(t.fullName))
  after(() => endAfter(lingerMsMax, () => 'its tests have ended'))
  endAfter(fileMsMax, () => (running.size > 0 ? `running: ${[...running].join(', ')}` : 'no test is running'))
}

function endAfter(ms: number, describe: () => string): void {
  const timer = setTimeout(() => {
    const open = process.getActiveResourcesInfo().filter((name) => name !== 'Timeout')
    const why = `${process.argv[1]} did not exit within ${ms / 1000} s: ${describe()}; open: ${open.join(', ')}\n`
    console.error(why)
    const { TEST_FAILURES_FILE: failuresFile } = process.env
    if (failuresFile !== undefined) appendFileSync(failuresFile, `✖ ${why}`)
    process.exit(1)
  }, ms)
  timer.unref()
}
