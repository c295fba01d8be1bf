import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { childEnvironment } from './child-environment.ts'

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))

export type Ended = { readonly code: number | null; readonly stdout: string; readonly stderr: string }

/** The command as a user runs it, in a folder of its own. */
export type PennyCommand = {
  readonly folder: string
  readonly dataDir: string
  run(args: readonly string[], environment?: Readonly<Record<string, string>>, input?: string): Promise<Ended>
  /** In a terminal of 80 columns; words without spaces of their own. */
  inTerminal(words: string): Promise<Ended>
  /** The same with --json, parsed. */
  json<Result>(args: readonly string[]): Promise<Result>
  /** Starts the service; resolves when it is ready. */
  start(environment?: Readonly<Record<string, string>>): Promise<ChildProcess>
  spawn(args: readonly string[], environment?: Readonly<Record<string, string>>): ChildProcess
  sandbox(): { readonly base_url: string; readonly api_key: string }
  remove(): void
}

export function preparePenny(): PennyCommand {
  const folder = mkdtempSync(join(tmpdir(), 'penny-command-'))
  const dataDir = join(folder, 'data')
  const base = { ...childEnvironment, HOME: folder, DATA_DIR: dataDir, PORT: '0', SANDBOX_TOKENS_PER_SECOND: '0' }
  const launch = (args: readonly string[], environment: Readonly<Record<string, string>> = {}) =>
    spawn(process.execPath, [main, ...args], { cwd: folder, env: { ...base, ...environment }, stdio: 'pipe' })
  const run = async (args: readonly string[], environment?: Readonly<Record<string, string>>, input = '') => {
    const child = launch(args, environment)
    child.stdin.end(input)
    const [stdout, stderr, [code]] = await Promise.all([
      child.stdout.toArray(),
      child.stderr.toArray(),
      once(child, 'exit'),
    ])
    return { code, stdout: stdout.join(''), stderr: stderr.join('') }
  }
  return {
    folder,
    dataDir,
    run,
    async inTerminal(words) {
      const command = `stty cols 80; ${process.execPath} ${main} ${words}`
      const child = spawn('script', ['-qefc', command, '/dev/null'], { cwd: folder, env: base, stdio: 'pipe' })
      child.stdin.end()
      const [stdout, stderr, [code]] = await Promise.all([
        child.stdout.toArray(),
        child.stderr.toArray(),
        once(child, 'exit'),
      ])
      return { code, stdout: stdout.join(''), stderr: stderr.join('') }
    },
    async json(args) {
      const { stdout, stderr, code } = await run([...args, '--json'])
      if (stdout === '') throw new Error(`penny ${args.join(' ')} ended with ${code}: ${stderr}`)
      return JSON.parse(stdout)
    },
    async start(environment) {
      const child = launch(['start'], environment)
      let printed = ''
      let complaints = ''
      child.stderr.on('data', (text) => (complaints += text))
      await new Promise<void>((resolve, reject) => {
        child.stdout.on('data', (text) => {
          printed += text
          if (printed.includes('Ctrl-C stops everything.')) resolve()
        })
        child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${complaints}`)))
      })
      return child
    },
    spawn: launch,
    sandbox: () => JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8')),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
