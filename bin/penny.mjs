#!/usr/bin/env node
// The command. It works on any Node >= 18: see runtime.mjs.
import { prepare, run, SetupError } from './runtime.mjs'

try {
  const node = await prepare({ development: false })
  process.exitCode = await run(node, 'src/main.ts', process.argv.slice(2))
} catch (error) {
  console.error(error instanceof SetupError ? error.message : error)
  process.exitCode = error instanceof SetupError ? error.exitCode : 1
}
