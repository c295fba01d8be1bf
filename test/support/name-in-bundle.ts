import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The name of a program's file in the bundle of the service. */
export function nameInBundle(program: string): string {
  return `${relative(root, program).replace(/\.ts$/, '').replaceAll('/', '-')}.mjs`
}
