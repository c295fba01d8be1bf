import { parseArgs } from 'node:util'
import { bundleService } from '../support/bundle.ts'
import { compileCache } from '../support/child-environment.ts'
import { readProof, recordProof } from '../support/proof.ts'
import { Coverage, delivererFaults, type FaultCount } from './coverage.ts'
import { PostgresServer } from './postgres-server.ts'
import { runRound } from './runner.ts'

// `npm run faults`: kills processes of the service and PostgreSQL until the requested numbers are reached, and checks after each round
// that every atomic unit is where it should be. `--seed S --rounds 1` repeats a round. After every round the results are written to
// docs/proof/faults.json, and --resume continues an interrupted run from there.

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '10000' },
    'postgres-kills': { type: 'string', default: '2000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
    rounds: { type: 'string' },
    nodes: { type: 'string', default: '4' },
    clients: { type: 'string', default: '16' },
    resume: { type: 'boolean', default: false },
  },
})
const killsPerRound = 100

type Note = {
  readonly seed: number
  readonly rounds: number
  readonly size: { readonly kills: number; readonly postgresKills: number }
  readonly done: number
  readonly total: Totals
  readonly problems: number
  readonly coverage: Readonly<Record<string, FaultCount>>
}
type Totals = {
  kills: number
  postgresKills: number
  requests: number
  answered: number
  received: number
  slowestEndMs: number
}

const earlier = values.resume ? readProof<Note>('faults') : undefined
if (values.resume && earlier === undefined) throw new Error('there is no run to go on with')
const { seed, rounds, size } = earlier ?? newRun()
const total: Totals = {
  ...(earlier?.total ?? { kills: 0, postgresKills: 0, requests: 0, answered: 0, received: 0, slowestEndMs: 0 }),
}
const coverage = new Coverage(earlier?.coverage)

// Exit through `process.exit`, so that the exit handlers end the processes of the run.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))

process.env.NODE_COMPILE_CACHE ??= compileCache
process.env.TEST_SERVICE_PROGRAM ??= await bundleService()
const startedMs = performance.now()
const firstRound = earlier?.done ?? 0
await using stack = new AsyncDisposableStack()
const postgres = await PostgresServer.start()
stack.defer(() => postgres.stop())
let problems = 0
try {
  for (let round = firstRound; round < rounds && problems === 0; round += 1) problems = await run(round)
} catch (error) {
  // Print the whole error: the reason for the failure, and any errors while cleaning up.
  console.error(error)
  problems = 1
}
console.log(`\n${coverage.table()}\n`)
const missing = [...coverage.missing(), ...delivererFaults.filter((fault) => coverage.counts[fault] === undefined)]
for (const pair of missing) console.log(`never hit: ${pair}`)
console.log(
  `${total.kills} process kills, ${total.postgresKills} PostgreSQL kills, ${total.requests} requests (${total.answered} answered whole), ` +
    `${total.received} webhook messages, ` +
    `slowest end of an orphaned hold ${total.slowestEndMs} ms`,
)
process.exitCode = problems > 0 || missing.length > 0 ? 1 : 0

function newRun(): Pick<Note, 'seed' | 'rounds' | 'size'> {
  const [kills, postgresKills] = [Number(values.kills), Number(values['postgres-kills'])]
  const count = Number(values.rounds ?? Math.ceil(kills / killsPerRound))
  const each = { kills: Math.ceil(kills / count), postgresKills: Math.ceil(postgresKills / count) }
  return { seed: Number(values.seed), rounds: count, size: each }
}

/** Runs one round and prints a line about it. Returns the number of problems. */
async function run(round: number): Promise<number> {
  const roundSeed = seed + round
  const result = await runRound({
    seed: roundSeed,
    size,
    nodes: Number(values.nodes),
    clients: Number(values.clients),
    postgres,
    coverage,
    deliversWebhooks: true,
  })
  total.kills += result.kills
  total.postgresKills += result.postgresKills
  total.requests += result.requests
  total.answered += result.answered
  total.received += result.received
  total.slowestEndMs = Math.max(total.slowestEndMs, result.slowestEndMs)
  const done = round + 1
  // A single round repeats one of another run, and is no proof.
  if (rounds > 1)
    recordProof('faults', {
      seed,
      rounds,
      size,
      done,
      total,
      problems: result.problems.length,
      coverage: coverage.counts,
    })
  const minutes = (performance.now() - startedMs) / 60_000
  const left = Math.round(((rounds - done) * minutes) / (done - firstRound))
  console.log(
    `round ${done}/${rounds} (seed ${roundSeed})  kills ${total.kills}  PostgreSQL kills ${total.postgresKills}  ` +
      `requests ${total.requests}  problems ${result.problems.length}  ${minutes.toFixed(1)} minutes, about ${left} left`,
  )
  for (const problem of result.problems.slice(0, 20)) console.error(problem)
  if (result.problems.length > 0) {
    console.error(
      `Repeat with: npm run faults -- --seed ${roundSeed} --rounds 1 --kills ${size.kills} --postgres-kills ${size.postgresKills}`,
    )
  }
  return result.problems.length
}
