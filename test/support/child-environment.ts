import { fileURLToPath } from 'node:url'

/** A folder for Node's compile cache, the one of `npm start`. */
export const compileCache = fileURLToPath(new URL('../../node_modules/.cache/penny', import.meta.url))

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
