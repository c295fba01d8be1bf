import { appendFileSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { type Engine, type FoundEngine, findEngine } from './engine.ts'

// Drills try the service on real engines. `npm test` runs them short, on the engines that are installed; `npm run drill` installs
// missing ones, runs all drills whole and prints a table.

export type DrillRow = { readonly engine: string; readonly tried: string; readonly result: string }

/** One line of progress. */
export type DrillStep = { readonly engine: string; readonly step: string; readonly seconds: number }

/** Reports progress: what is done now, or what was seen. */
export type Step = (text: string) => void

/** Where steps and the rows of the table go. */
export const tableVariable = 'DRILL_TABLE'

/** Whether everything is tried, as `npm run drill` does. */
export const isWhole = process.env[tableVariable] !== undefined

export type Drill = {
  readonly engine: Engine
  /** What is tried, for the table. */
  readonly tried: string
  /** Why it cannot be tried on this machine, although the engine may be there. */
  readonly problem?: string | undefined
  /** @returns what was seen, in one line. @throws when it is not what the service promises */
  readonly run: (engine: FoundEngine, step: Step) => Promise<string>
}

/** Several times what the longest takes. A drill that hangs must not hide the results of the others. */
const drillMsMax = 15 * 60_000

/** A test on a real engine. Where the engine is missing, it says so and tries nothing. */
export function drill({ engine, tried, problem, run }: Drill): void {
  test(`${engine.name}: ${tried}`, async (context) => {
    const found = problem ?? findEngine(engine, { mayInstall: isWhole })
    if (typeof found === 'string') {
      context.diagnostic(`NOT TRIED: ${found}`)
      return record({ engine: engine.name, tried, result: `not tried: ${found}` })
    }
    const name = `${engine.name} ${found.version}`
    const startedMs = performance.now()
    const step: Step = (text) =>
      record({ engine: engine.name, step: text, seconds: Math.round((performance.now() - startedMs) / 1000) })
    step(tried)
    try {
      const result = await Promise.race([run(found, step), failAfter(drillMsMax)])
      step('passed')
      context.diagnostic(result)
      record({ engine: name, tried, result: `passed: ${result}` })
    } catch (error) {
      record({ engine: name, tried, result: `FAILED: ${firstLine(error)}` })
      throw error
    }
  })
}

async function failAfter(ms: number): Promise<never> {
  await pause(ms, undefined, { ref: false })
  throw new Error(`it did not end within ${ms / 60_000} minutes`)
}

function record(row: DrillRow | DrillStep): void {
  const file = process.env[tableVariable]
  if (file !== undefined) appendFileSync(file, `${JSON.stringify(row)}\n`)
}

function firstLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n')[0]!
}
