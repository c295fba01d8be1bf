import { after } from 'node:test'

// Loaded into the process of every test file. `node --test` waits without end for a process that has run its tests and does
// not go, and for one whose tests stand still: whoever left a server open would stop the whole run and never be named.

/** Ends of services are among what follows the tests. */
const lingerMsMax = Number(process.env.TEST_LINGER_MS ?? 120_000)
const fileMsMax = 20 * 60_000
const isLong = process.env.TEST_IS_LONG === '1'

// A long form audits at its end what it has written, for as long as that takes.
if (!isLong) {
  after(() => watch(lingerMsMax, 'its tests are over'))
  watch(fileMsMax, 'it is given up')
}

function watch(ms: number, why: string): void {
  const timer = setTimeout(() => {
    const open = process.getActiveResourcesInfo().filter((name) => name !== 'Timeout')
    console.error(`${process.argv[1]} does not end: after ${ms / 1000} s ${why}, and this is open: ${open.join(', ')}`)
    process.exit(1)
  }, ms)
  timer.unref()
}
