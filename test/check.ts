import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

// `npm run check`: types, lint and format, unused code, import direction and other house rules, generated files fresh.

const root = fileURLToPath(new URL('..', import.meta.url))

const steps: readonly { readonly title: string; readonly command: readonly string[] }[] = [
  { title: 'types', command: ['node_modules/.bin/tsc', '-p', 'tsconfig.json'] },
  { title: 'types of the dashboard', command: ['node_modules/.bin/tsc', '-p', 'web/tsconfig.json'] },
  { title: 'lint and format', command: ['node_modules/.bin/biome', 'check', '--error-on-warnings'] },
  { title: 'unused code', command: ['node_modules/.bin/knip'] },
  {
    title: 'house rules and generated files',
    command: [process.execPath, '--test', '--test-reporter=dot', 'test/tidy.test.ts', 'test/generated.test.ts'],
  },
]

/** Runs every step and returns how many failed: all complaints at once save a round. */
export async function check(): Promise<number> {
  let failed = 0
  for (const { title, command } of steps) {
    console.log(`— ${title}`)
    const [program, ...args] = command
    const { status } = spawnSync(program!, args, { cwd: root, stdio: 'inherit' })
    if (status !== 0) failed += 1
  }
  return failed
}

if (import.meta.main) process.exitCode = (await check()) === 0 ? 0 : 1
