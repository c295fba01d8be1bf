import { parseArgs } from 'node:util'
import { Coverage } from './coverage.ts'
import { PostgresServer } from './postgres-server.ts'
import { runRound } from './runner.ts'

// `npm run faults`: kills processes of the service and PostgreSQL until there have been enough of them, and asks after each
// round whether every atomic unit is where it should be. A seed repeats a round: --seed S --rounds 1.

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '10000' },
    'postgres-kills': { type: 'string', default: '2000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
    rounds: { type: 'string' },
    nodes: { type: 'string', default: '3' },
    clients: { type: 'string', default: '12' },
  },
})
const killsPerRound = 100
const [killsWanted, postgresKillsWanted, firstSeed] = [values.kills, values['postgres-kills'], values.seed].map(Number)
const rounds = Number(values.rounds ?? Math.ceil(killsWanted! / killsPerRound))
const size = {
  kills: Math.ceil(killsWanted! / rounds),
  postgresKills: Math.ceil(postgresKillsWanted! / rounds),
}

// Leaves by the door, past which the processes of the run are ended.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))

const coverage = new Coverage()
const postgres = await PostgresServer.start()
const total = { kills: 0, postgresKills: 0, requests: 0, answered: 0, slowestEndMs: 0 }
let failed = false
try {
  for (let round = 0; round < rounds && !failed; round += 1) failed = !(await run(firstSeed! + round, round))
} finally {
  await postgres.stop()
}
console.log(`\n\n${coverage.table()}\n`)
const missing = coverage.missing()
for (const pair of missing) console.log(`never hit: ${pair}`)
console.log(
  `${total.kills} process kills, ${total.postgresKills} PostgreSQL kills, ${total.requests} requests (${total.answered} answered whole), ` +
    `slowest end of an orphaned hold ${total.slowestEndMs} ms`,
)
process.exitCode = failed || missing.length > 0 ? 1 : 0

async function run(seed: number, round: number): Promise<boolean> {
  const result = await runRound({
    seed,
    size,
    nodes: Number(values.nodes),
    clients: Number(values.clients),
    postgres,
    coverage,
    onProgress: ({ kills, postgresKills, requests }) =>
      process.stdout.write(
        `\rround ${round + 1}/${rounds} (seed ${seed})  kills ${total.kills + kills}  PostgreSQL kills ${total.postgresKills + postgresKills}  requests ${total.requests + requests}   `,
      ),
  })
  total.kills += result.kills
  total.postgresKills += result.postgresKills
  total.requests += result.requests
  total.answered += result.answered
  total.slowestEndMs = Math.max(total.slowestEndMs, result.slowestEndMs)
  for (const problem of result.problems.slice(0, 20)) console.error(`\n${problem}`)
  if (result.problems.length > 0) {
    console.error(
      `\n${result.problems.length} problems. Repeat with: npm run faults -- --seed ${seed} --rounds 1 --kills ${size.kills} --postgres-kills ${size.postgresKills}`,
    )
  }
  return result.problems.length === 0
}
