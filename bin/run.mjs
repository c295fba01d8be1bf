#!/usr/bin/env node
// Runs one of the project's own TypeScript files (tests, checks, benches) with the development tools installed.
import { prepare, run, SetupError } from './runtime.mjs'

try {
  const [file, ...args] = process.argv.slice(2)
  const node = await prepare({ development: true })
  process.exitCode = await run(node, file, args)
} catch (error) {
  console.error(error instanceof SetupError ? error.message : error)
  process.exitCode = error instanceof SetupError ? error.exitCode : 1
}
