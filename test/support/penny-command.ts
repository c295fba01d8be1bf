import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { childEnvironment, pennyProgram } from './child-environment.ts'
import type { KeptCall } from './kept-penny.ts'

const keptProgram = fileURLToPath(new URL('./kept-penny.ts', import.meta.url))

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
  /** Stops the service that was started last, if it still runs. */
  stop(signal?: NodeJS.Signals): Promise<void>
  spawn(args: readonly string[], environment?: Readonly<Record<string, string>>): ChildProcess
  sandbox(): { readonly base_url: string; readonly api_key: string }
  /** Stops the service, and removes the folder. */
  remove(): Promise<void>
}

type PennyOptions = {
  /**
   * Only the first `run` of each command has a process of its own, which must end. The next ones share a process, one after the other,
   * and take no time to load: not for tests that run two commands concurrently.
   */
  readonly keepsProcess?: boolean
}

export function preparePenny({ keepsProcess = false }: PennyOptions = {}): PennyCommand {
  const folder = mkdtempSync(join(tmpdir(), 'penny-command-'))
  const dataDir = join(folder, 'data')
  const base = { ...childEnvironment, HOME: folder, DATA_DIR: dataDir, PORT: '0', SANDBOX_TOKENS_PER_SECOND: '0' }
  const launch = (args: readonly string[], environment: Readonly<Record<string, string>> = {}) =>
    spawn(process.execPath, [...pennyProgram(), ...args], {
      cwd: folder,
      env: { ...base, ...environment },
      stdio: 'pipe',
    })
  const seen = new Set<string | undefined>()
  let kept: KeptProcess | undefined
  let service: ChildProcess | undefined
  const run = async (args: readonly string[], environment?: Readonly<Record<string, string>>, input = '') => {
    if (keepsProcess && seen.has(args[0])) {
      kept ??= keepProcess(folder, base)
      return kept.run({ args, environment: { ...base, ...environment }, input })
    }
    seen.add(args[0])
    const child = launch(args, environment)
    child.stdin.end(input)
    const [stdout, stderr, [code]] = await Promise.all([
      child.stdout.toArray(),
      child.stderr.toArray(),
      once(child, 'exit'),
    ])
    return { code, stdout: stdout.join(''), stderr: stderr.join('') }
  }
  const stop = async (signal: NodeJS.Signals = 'SIGTERM') => {
    if (service === undefined || service.exitCode !== null || service.signalCode !== null) return
    const exited = once(service, 'exit')
    service.kill(signal)
    await exited
  }
  return {
    folder,
    dataDir,
    run,
    stop,
    async inTerminal(words) {
      const command = `stty cols 80; ${[process.execPath, ...pennyProgram(), words].join(' ')}`
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
      service = child
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
    async remove() {
      await stop()
      kept?.end()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

type KeptProcess = { run(call: KeptCall): Promise<Ended>; end(): void }

/** One call at a time: a process has one environment and one output. */
function keepProcess(cwd: string, env: Readonly<Record<string, string>>): KeptProcess {
  const child = fork(keptProgram, [pennyProgram().at(-1)!], {
    cwd,
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const call = (given: KeptCall) =>
    new Promise<Ended>((resolve, reject) => {
      const onExit = (code: number | null) =>
        reject(new Error(`penny ${given.args.join(' ')} ended its process: ${code}`))
      // The program itself reports its exit code to its parent too.
      const onMessage = ({ ended }: { readonly ended?: Ended }) => {
        if (ended === undefined) return
        child.off('message', onMessage).off('exit', onExit)
        resolve(ended)
      }
      child.on('message', onMessage).once('exit', onExit)
      child.send(given)
    })
  let last: Promise<unknown> = Promise.resolve()
  return {
    run(given) {
      const ended = last.then(() => call(given))
      last = ended.catch(() => {})
      return ended
    },
    end: () => child.disconnect(),
  }
}
