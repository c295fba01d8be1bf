import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describeCitusRun } from './support/citus-record.ts'
import { findTests, linters } from './support/suite.ts'

// `npm run check`: types, lint and format, unused code, openapi.json, and our own linters: import direction, SQL, names in the documentation, generated
// files fresh.

const root = fileURLToPath(new URL('..', import.meta.url))

/** One checker per program takes two thirds of the CPU time of four, each of which checks the shared types again. */
const types = (config: string) => {
  const known = `node_modules/.cache/penny/${config.replaceAll('/', '-')}.tsbuildinfo`
  return ['node_modules/.bin/tsc', '-p', config, '--checkers', '1', '--incremental', '--tsBuildInfoFile', known]
}

const steps: readonly { readonly title: string; readonly command: readonly string[] }[] = [
  { title: 'types', command: types('tsconfig.json') },
  { title: 'types of the dashboard', command: types('web/tsconfig.json') },
  { title: 'lint and format', command: ['node_modules/.bin/biome', 'check', '--error-on-warnings'] },
  {
    title: 'openapi.json',
    // Without its telemetry and its notices.
    command: [
      'env',
      'REDOCLY_TELEMETRY=off',
      'REDOCLY_SUPPRESS_NOTIFICATIONS=true',
      'node_modules/.bin/redocly',
      'lint',
      'openapi.json',
    ],
  },
  { title: 'clients generated from openapi.json', command: [process.execPath, 'test/openapi/check.ts'] },
  { title: 'unused code', command: ['node_modules/.bin/knip'] },
  {
    title: 'lint of ranks, SQL, names and generated files',
    command: [process.execPath, '--test', '--test-reporter=dot', ...findTests(linters)],
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
  const citus = describeCitusRun()
  if (citus !== undefined) console.log(`— Citus (for information)\n${citus}`)
  return failed
}

async function run([program, ...args]: readonly string[]): Promise<{ code: number | null; said: string }> {
  const child = spawn(program!, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const [output, complaints, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code, said: output + complaints }
}

if (import.meta.main) process.exitCode = (await check()).length === 0 ? 0 : 1
