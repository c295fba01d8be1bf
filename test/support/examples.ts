import { randomInt } from 'node:crypto'

type Counts = {
  /** For `npm test` and a file that is run by hand. */
  readonly short: number
  /** For `npm run test:full`. */
  readonly full: number
  /** For `npm run test:all`; left out, as many as `full`. */
  readonly all?: number
}

/** How many random examples a test draws. The environment variable sets any other number, for a long run. */
export function exampleCount(variable: string, { short, full, all = full }: Counts): number {
  const counts: Readonly<Record<string, number>> = { short, full, all }
  return Number(process.env[variable] ?? counts[process.env.TEST_FORM ?? 'short'])
}

/** The seed for what fast-check does not draw. The environment variable repeats one test; TEST_SEED repeats the run. */
export function seedOf(variable: string): number {
  return Number(process.env[variable] ?? process.env.TEST_SEED ?? randomInt(1_000_000_000))
}
