import { fileURLToPath } from 'node:url'

/** A folder for Node's compile cache, the one of `npm start`. */
export const compileCache = fileURLToPath(new URL('../../node_modules/.cache/penny', import.meta.url))

/**
 * The young generation starts as large as it may become: growing it takes a third of the CPU time of processes that live for seconds.
 * Child processes inherit this.
 */
export const youngGeneration = '--min-semi-space-size=16'

/** What Node runs as `penny` in tests: the bundle that the run has made, or the sources. */
export function pennyProgram(): readonly string[] {
  const sources = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
  return [youngGeneration, process.env.TEST_SERVICE_PROGRAM ?? sources]
}

/**
 * What every process that a test starts needs of the environment: no setting of the developer's own, and the compiled code
 * that all of them share. Without it each of them compiles the whole service again, which takes a second of a core.
 */
export const childEnvironment = {
  PATH: process.env.PATH ?? '',
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? compileCache,
  // On every machine, however many cores it has.
  WEB_PROCESSES: '1',
}
