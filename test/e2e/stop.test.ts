import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { childEnvironment } from '../support/child-environment.ts'
import { leftovers } from '../support/leftovers.ts'
import { completed, created, startScriptedUpstream, text } from '../support/scripted-upstream.ts'
import { until } from '../support/until.ts'

// Stopping the service as terminals, npm, `timeout`, supervisors and impatient people do: with real process groups. Whatever the
// signals, nothing that was started may be left running.

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'penny-stop-'))
const wrapper = [process.execPath, join(root, 'bin/penny.mjs'), 'start']
const npm = ['npm', 'start', '--prefix', root]
/** Longer than the time in which a signal that arrives twice counts once. */
const pastDuplicatesMs = 1_200
const groups = new Set<number>()
const upstream = await startScriptedUpstream()
after(async () => {
  for (const group of groups) signalGroup(group, 'SIGKILL')
  await upstream.close()
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

test('one SIGTERM for the whole process group lets a stream finish, and leaves nothing running', async () => {
  const service = await start(wrapper)
  const stream = await openStream(service)
  signalGroup(service.pid, 'SIGTERM')
  assert.match(
    await service.said(/running; stopping/),
    /1 request running; stopping when it ends, at most 30 s\. Press Ctrl-C again to stop now\./,
  )
  await stream.finish()
  assert.match(await stream.rest, /data: \[DONE\]/)
  assert.equal(await service.exitCode, 0)
  assert.deepEqual(leftovers(service.dataDir), [])
})

// npm forwards a signal that the group got as well: that is one signal.
for (const [name, command, signal] of [
  ['Ctrl-C under npm', npm, 'SIGINT'],
  ['SIGTERM', wrapper, 'SIGTERM'],
] as const) {
  test(`a second ${name} ends the stream with an error, and leaves nothing running`, async () => {
    const service = await start(command)
    const stream = await openStream(service)
    signalGroup(service.pid, signal)
    await service.said(/running; stopping/)
    await pause(pastDuplicatesMs)
    assert.doesNotMatch(service.output(), /Stopping now/)
    signalGroup(service.pid, signal)
    assert.match(await stream.rest, /data: \{"error":\{"message":"The service is restarting/)
    assert.match(await service.said(/Stopping now/), /Stopping now: ending 1 request\./)
    await service.exitCode
    assert.deepEqual(leftovers(service.dataDir), [])
  })
}

test('killing only npm stops the service cleanly', async () => {
  const service = await start(npm)
  process.kill(service.pid, 'SIGTERM')
  await until(() => leftovers(service.dataDir).length === 0)
  assert.match(service.output(), /Stopping\./)
})

test('a signal to only the wrapper stops the service', async () => {
  const service = await start(wrapper)
  process.kill(service.pid, 'SIGINT')
  assert.equal(await service.exitCode, 0)
  assert.deepEqual(leftovers(service.dataDir), [])
})

test('a closed terminal stops the service, and leaves nothing running', async () => {
  const dataDir = mkdtempSync(join(folder, 'data-'))
  const command = `${process.execPath} ${join(root, 'bin/penny.mjs')} start`
  // `script` gives the command a terminal of its own, which goes when `script` is killed.
  const terminal = launch(['script', '-qefc', command, '/dev/null'], dataDir)
  await until(() => readSandbox(dataDir))
  process.kill(terminal.pid!, 'SIGKILL')
  await until(() => leftovers(dataDir).length === 0)
})

test('SIGTERM to every process at once, as systemd does by default: a stream finishes, and nothing is left running', async () => {
  const service = await start(wrapper)
  const stream = await openStream(service)
  const processes = descendants(service.pid)
  assert.ok(processes.length > 8, `PostgreSQL's backends are among them: ${processes.length}`)
  for (const pid of [service.pid, ...processes]) signal(pid, 'SIGTERM')
  await service.said(/running; stopping/)
  await service.said(/PostgreSQL is back/)
  await stream.finish()
  assert.match(await stream.rest, /data: \[DONE\]/)
  assert.equal(await service.exitCode, 0)
  assert.deepEqual(leftovers(service.dataDir), [])
})

test('SIGTERM to every process of an idle service stops it with exit code 0, and leaves nothing running', async () => {
  const service = await start(wrapper)
  for (const pid of [service.pid, ...descendants(service.pid)]) signal(pid, 'SIGTERM')
  assert.equal(await service.exitCode, 0, service.output())
  assert.deepEqual(leftovers(service.dataDir), [])
})

test('kill -9 of only the wrapper stops the service cleanly', async () => {
  const service = await start(wrapper)
  signal(service.pid, 'SIGKILL')
  await until(() => leftovers(service.dataDir).length === 0)
  assert.match(service.output(), /Stopping\./)
})

test('kill -9 of the service: its helpers and PostgreSQL end, and the next start is a normal one', async () => {
  const killed = await start(wrapper)
  const helpers = descendants(killed.pid).filter((pid) => /^penny-|jobs\/settle/.test(commandLine(pid)))
  assert.ok(helpers.length >= 4, `${helpers.length} helpers`)
  signalGroup(killed.pid, 'SIGKILL')
  await until(() => leftovers(killed.dataDir).length === 0)
  const next = await start(wrapper)
  signalGroup(next.pid, 'SIGTERM')
  assert.equal(await next.exitCode, 0)
  assert.deepEqual(leftovers(next.dataDir), [])
})

// Each line is one that a start prints before the part that is interrupted.
for (const [part, line] of [
  ['the database is created', /Creating the database/],
  ['PostgreSQL starts', /Starting PostgreSQL/],
  ['the sandbox starts', /Starting the sandbox/],
  ['settlement starts', /Starting settlement/],
] as const) {
  test(`a signal to the group while ${part} stops the start, and leaves nothing running`, async () => {
    const dataDir = mkdtempSync(join(folder, 'data-'))
    const service = watch(launch(wrapper, dataDir), dataDir)
    await service.said(line)
    signalGroup(service.pid, 'SIGTERM')
    await pause(pastDuplicatesMs)
    signalGroup(service.pid, 'SIGINT')
    assert.equal(await service.exitCode, 0)
    assert.doesNotMatch(service.output(), /\n\s+at /)
    assert.deepEqual(leftovers(dataDir), [])
  })
}

type RunningService = {
  readonly pid: number
  readonly dataDir: string
  readonly exitCode: Promise<number | null>
  output(): string
  /** Resolves with what was printed once it fits. */
  said(pattern: RegExp): Promise<string>
}

function launch(command: readonly string[], dataDir: string): ChildProcess {
  const child = spawn(command[0]!, command.slice(1), {
    cwd: folder,
    env: {
      ...childEnvironment,
      HOME: dataDir,
      DATA_DIR: dataDir,
      PORT: '0',
      UPSTREAM_BASE_URL: upstream.url,
      UPSTREAM_API_KEY: 'test',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  groups.add(child.pid!)
  return child
}

function watch(child: ChildProcess, dataDir: string): RunningService {
  let output = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (text) => (output += text))
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  let hasExited = false
  void exited.then(() => (hasExited = true))
  return {
    pid: child.pid!,
    dataDir,
    exitCode: exited,
    output: () => output,
    said: (pattern) =>
      until(() => {
        if (pattern.test(output)) return output
        assert.ok(!hasExited, `it ended: ${output}`)
        return undefined
      }),
  }
}

/** On one data folder, again and again: a stop that leaves something behind also shows in the next start. */
async function start(command: readonly string[]): Promise<RunningService> {
  const dataDir = join(folder, 'data')
  const service = watch(launch(command, dataDir), dataDir)
  await service.said(/Ctrl-C stops everything\./)
  return service
}

type OpenStream = {
  /** What came after the first piece, once the stream has ended. */
  readonly rest: Promise<string>
  /** Lets the model finish its answer. */
  finish(): Promise<void>
}

/** Resolves when the first piece of an answer has arrived, whose end the test decides. */
async function openStream({ dataDir }: RunningService): Promise<OpenStream> {
  const finished = Promise.withResolvers<void>()
  upstream.answer = (exchange) => {
    exchange.send(created, text('one'))
    void finished.promise.then(() => {
      exchange.send(completed())
      exchange.end()
    })
  }
  const { base_url: baseUrl, api_key: apiKey } = readSandbox(dataDir)!
  const answer = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({
      stream: true,
      web_search: false,
      web_fetch: false,
      messages: [{ role: 'user', content: 'Hi' }],
    }),
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
  })
  const pieces = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let seen = ''; !seen.includes('one'); ) seen += (await pieces.read()).value
  const readRest = async () => {
    let rest = ''
    for (;;) {
      const { done, value } = await pieces.read()
      if (done) return rest
      rest += value
    }
  }
  return { rest: readRest(), finish: async () => finished.resolve() }
}

function readSandbox(dataDir: string): { readonly base_url: string; readonly api_key: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8'))
  } catch {
    return undefined
  }
}

function signalGroup(group: number, name: NodeJS.Signals): void {
  signal(-group, name)
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Process ids of all children, their children, and so on, whatever their session. */
function descendants(pid: number): readonly number[] {
  const parents = readdirSync('/proc').flatMap((name) => {
    const parent = /^\d+$/.test(name) ? /\) \S (\d+)/.exec(readProc(Number(name), 'stat'))?.[1] : undefined
    return parent === undefined ? [] : [[Number(name), Number(parent)] as const]
  })
  const below = (parent: number): readonly number[] =>
    parents.flatMap(([child, its]) => (its === parent ? [child, ...below(child)] : []))
  return below(pid)
}

function commandLine(pid: number): string {
  return readProc(pid, 'cmdline')
}

function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return ''
  }
}
