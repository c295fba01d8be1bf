#!/usr/bin/env node
// The command. It works on any Node >= 18: see runtime.mjs.
import { findStartProblem } from './preflight.mjs'
import { isReady, prepare, run, SetupError, stopWithNpm } from './runtime.mjs'

stopWithNpm()
try {
  await refuseImpossibleStart(process.argv[2])
  const node = await prepare({ development: false })
  process.exitCode = await run(node, 'src/main.ts', process.argv.slice(2))
} catch (error) {
  console.error(error instanceof SetupError ? error.message : error)
  process.exitCode = error instanceof SetupError ? error.exitCode : 1
}

/** When everything is installed, the service makes these checks itself, and better. */
async function refuseImpossibleStart(command) {
  if (command !== 'start' || isReady(false)) return
  const problem = await findStartProblem(process.env)
  if (problem !== undefined) throw new SetupError(`penny: ${problem}`)
}
