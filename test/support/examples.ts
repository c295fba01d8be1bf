import { randomInt } from 'node:crypto'

type Counts = {
  /** For `npm test` and a file that is run by hand. */
  readonly short: number
  /** For `npm run test:all`. */
  readonly all: number
}

/** How many random examples a test draws. The environment variable sets any other number, for a long run. */
export function exampleCount(variable: string, { short, all }: Counts): number {
  return Number(process.env[variable] ?? (process.env.TEST_ALL === '1' ? all : short))
}

/** For a test of the ledger that `npm test` also runs on an older, partitioned PostgreSQL: there it only has to reach every statement. */
export function databaseExamples(count: number): number {
  return process.env.TEST_IS_ASIDE === '1' ? Math.ceil(count / 4) : count
}

/** The seed for what fast-check does not draw. The environment variable repeats one test; TEST_SEED repeats the run. */
export function seedOf(variable: string): number {
  return Number(process.env[variable] ?? process.env.TEST_SEED ?? randomInt(1_000_000_000))
}
