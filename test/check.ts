import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
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

/** Runs every step, all at once, and returns the titles of those that failed: all complaints together save a round. */
export async function check(): Promise<readonly string[]> {
  const runs = steps.map(({ command }) => run(command))
  const failed: string[] = []
  for (const [index, { title }] of steps.entries()) {
    const { code, said } = await runs[index]!
    console.log(`— ${title}`)
    process.stdout.write(said)
    if (code !== 0) failed.push(title)
  }
  return failed
}

async function run([program, ...args]: readonly string[]): Promise<{ code: number | null; said: string }> {
  const child = spawn(program!, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const [output, complaints, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code, said: output + complaints }
}

if (import.meta.main) process.exitCode = (await check()).length === 0 ? 0 : 1
