import { randomInt } from 'node:crypto'
import { parseArgs } from 'node:util'
import { findViolations } from '../src/ledger/audit.ts'
import { fuzz, loggedCount } from './support/fuzz.ts'
import { startTestService } from './support/service.ts'

// `npm run fuzz`: a quarter of a million requests that are more or less wrong against the whole service, and what became
// of them. `--seed` repeats a run, `--count` makes it shorter or longer.

const { values } = parseArgs({ options: { seed: { type: 'string' }, count: { type: 'string', default: '250000' } } })
const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed)
const count = Number(values.count)
const progressEvery = 5_000

console.log(`${count} requests of seed ${seed}`)
const service = await startTestService({ environment: { BODY_BYTES_MAX: '100000' } })
const startedMs = performance.now()
const result = await fuzz(service, {
  seed,
  count,
  atOnce: 32,
  onProgress(done) {
    if (done % progressEvery !== 0) return
    const seconds = (performance.now() - startedMs) / 1000
    console.log(`${done} requests, ${Math.round(done / seconds)} a second`)
  },
})
console.table(Object.entries(result.answers).toSorted(([, one], [, other]) => other - one))
const { logged, expected } = await loggedCount(service, result)
const open = await service.database.query('select id from holds')
const problems = [
  ...result.problems,
  ...(logged === expected ? [] : [`the log has ${logged} of ${expected} requests`]),
  ...(open.length === 0 ? [] : [`${open.length} holds are open`]),
  ...(await findViolations(service.database)).map((violation) => JSON.stringify(violation)),
]
await service.stop()
for (const problem of problems) console.error(problem)
console.log(problems.length === 0 ? 'every answer was clean, and the ledger balances' : `repeat with --seed ${seed}`)
process.exitCode = problems.length === 0 ? 0 : 1
