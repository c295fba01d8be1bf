import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { childEnvironment } from '../support/child-environment.ts'

// The command as a user runs it: processes, signals, files, exit codes.

const root = fileURLToPath(new URL('../..', import.meta.url))
const main = join(root, 'src/main.ts')
const folder = mkdtempSync(join(tmpdir(), 'penny-start-'))
const dataDir = join(folder, 'data')
const environment = {
  ...childEnvironment,
  HOME: folder,
  DATA_DIR: dataDir,
  PORT: '0',
  SANDBOX_TOKENS_PER_SECOND: '0',
}
/** At most one at a time. */
const running = new Set<ChildProcess>()
after(() => {
  for (const child of running) child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})

type Sandbox = {
  readonly base_url: string
  readonly api_key: string
  readonly dashboard_url: string
  readonly pid: number
}

test('from nothing: the printed curl is answered, and what it cost is in the ledger', async () => {
  const { child, printed } = await start()
  const sandbox = readSandbox()
  assert.ok(printed.includes(sandbox.base_url) && printed.includes(sandbox.api_key) && printed.includes('25 test USDC'))
  assert.equal(statSync(join(dataDir, 'sandbox.json')).mode & 0o777, 0o600)

  const { stdout } = await promisify(execFile)('sh', ['-c', printedCurl(printed)])
  assert.match(stdout, /^HTTP\/1\.1 200 OK/)
  for (const header of ['x-router-request-id', 'x-router-held-usdc', 'x-router-charged-usdc'])
    assert.ok(stdout.includes(`${header}: `))
  const [, id] = /x-router-request-id: (\S+)/.exec(stdout)!
  const row = (await (
    await fetch(new URL(`/api/requests/${id}`, sandbox.base_url), {
      headers: { authorization: `Bearer ${sandbox.api_key}` },
    })
  ).json()) as { status: string }
  assert.equal(row.status, 'succeeded')

  const page = await fetch(sandbox.dashboard_url)
  assert.deepEqual([page.status, page.headers.get('content-type')?.toLowerCase()], [200, 'text/html; charset=utf-8'])
  await stop(child, 'SIGTERM')
})

test('a second start keeps key, balance and log, and Ctrl-C stops everything that was started', async () => {
  const before = readSandbox()
  const { child, printed } = await start()
  assert.equal(readSandbox().api_key, before.api_key)
  assert.match(printed, /Balance {4}24\.\d+ test USDC/)
  assert.ok((await processesOf(dataDir)) > 0)
  await stop(child, 'SIGINT')
  assert.equal(await processesOf(dataDir), 0)
})

test('a second copy on the same data folder is refused with one clear line, and the first goes on', async () => {
  await ensureStarted()
  const admin = readFileSync(join(dataDir, 'sandbox-admin.json'), 'utf8')
  const second = await run(['start'])
  assert.equal(second.code, 1)
  assert.match(second.stderr, /^penny: Another penny \(process \d+\) is running on .*$/m)
  assert.equal((await fetch(new URL('/readyz', readSandbox().base_url))).status, 200)
  // The first one's sandbox as well: a second chain on its journal would take it away.
  assert.equal(readFileSync(join(dataDir, 'sandbox-admin.json'), 'utf8'), admin)
  const faucet = await run(['faucet', '--amount', '1'])
  assert.equal(faucet.code, 0, faucet.stderr)
})

test('keys are made, listed and revoked beside a running service, given only its data folder', async () => {
  await ensureStarted()
  const { base_url: baseUrl } = readSandbox()
  const created = JSON.parse(
    (await run(['keys', 'create', '--name', 'ci', '--limit', '0.5', '--window', 'day', '--json'])).stdout,
  ) as { id: string; api_key: string }
  const ask = () =>
    fetch(`${baseUrl}/chat/completions`, {
      method: 'POST',
      body: '{"messages":[{"role":"user","content":"Hi"}]}',
      headers: { authorization: `Bearer ${created.api_key}`, 'content-type': 'application/json' },
    })
  assert.equal((await ask()).status, 200)
  const listed = JSON.parse((await run(['keys', 'list', '--json'])).stdout) as {
    id: string
    limit: string
    hint: string
  }[]
  const key = listed.find(({ id }) => id === created.id)
  assert.deepEqual([key?.limit, key?.hint], ['0.5', `penny_…${created.api_key.slice(-4)}`])
  assert.equal((await run(['keys', 'revoke', created.id])).code, 0)
  assert.equal((await ask()).status, 401)
  const accounts = JSON.parse((await run(['accounts', '--json'])).stdout) as { name: string }[]
  assert.deepEqual(
    accounts.map(({ name }) => name),
    ['Sandbox demo'],
  )
})

test('the printed link and that of penny login-link sign in to the dashboard, each once', async () => {
  await ensureStarted()
  const { dashboard_url: printed } = readSandbox()
  const { url: asked } = JSON.parse((await run(['login-link', 'Sandbox demo', '--json'])).stdout) as { url: string }
  for (const url of [printed, asked]) {
    const { origin, hash } = new URL(url)
    const open = () =>
      fetch(`${origin}/api/auth/link`, {
        method: 'POST',
        body: JSON.stringify({ token: hash.replace('#token=', '') }),
        headers: { origin, 'content-type': 'application/json' },
      })
    const answer = await open()
    assert.equal(answer.status, 200)
    assert.equal(((await answer.json()) as { account: { name: string } }).account.name, 'Sandbox demo')
    assert.equal((await open()).status, 401)
  }
  assert.equal((await run(['login-link', 'nobody'])).code, 1)
})

test('after kill -9 the next start takes over the database that was left running', async () => {
  const child = await ensureStarted()
  child.kill('SIGKILL')
  await once(child, 'exit')
  const next = await start()
  assert.equal((await fetch(new URL('/readyz', readSandbox().base_url))).status, 200)
  await stop(next.child, 'SIGTERM')
})

test('a wrong call is exit code 2, a failure is 1, and both say why in one line', async () => {
  const cases = [
    [['frobnicate'], {}, 2, /Unknown command "frobnicate"/],
    [['keys', 'create', '--limit'], {}, 2, /--limit needs a value/],
    [['keys', 'create', '--name', 'x'], { DATA_DIR: join(folder, 'absent') }, 1, /No service runs on .*absent/],
    [['keys', 'revoke'], {}, 2, /Which key/],
    [['login-link'], {}, 2, /Which account/],
    [['start', '--frob'], {}, 2, /--frob/],
    [['start'], { PORT: 'x' }, 1, /PORT must be/],
    [
      ['start'],
      { HOST: '203.0.113.7' },
      1,
      /^penny: HOST is 203\.0\.113\.7, which is not an address of this machine\./m,
    ],
    [['start'], { NODE_ENV: 'production' }, 1, /--allow-embedded/],
    [['start'], { MODELS_FILE: join(folder, 'absent.json') }, 1, /MODELS_FILE/],
  ] as const
  for (const [args, extra, code, message] of cases) {
    const ended = await run(args, extra)
    assert.equal(ended.code, code, args.join(' '))
    assert.match(ended.stderr, message)
    assert.doesNotMatch(ended.stderr, /\n\s+at /)
  }
  assert.equal((await run(['--help'])).code, 0)
})

test('an error of a helper at its start stops the start, and only its message is printed', async () => {
  const refused = await run(['start'], { MASTER_KEY: 'ab'.repeat(32) })
  assert.equal(refused.code, 1)
  const said = refused.stderr.split('\n').filter((line) => line !== '' && !line.startsWith('  '))
  assert.equal(said.length, 1, refused.stderr)
  assert.match(said[0]!, /^penny: MASTER_KEY \(fingerprint \w+\) is not the key that .* was created with/)
})

/** The service of the test before, if it still runs: a start takes seconds. */
async function ensureStarted(): Promise<ChildProcess> {
  const [child = (await start()).child] = running
  return child
}

async function start(): Promise<{ child: ChildProcess; printed: string }> {
  const child = spawn(process.execPath, [main, 'start'], {
    cwd: folder,
    env: environment,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  running.add(child)
  child.once('exit', () => running.delete(child))
  let output = ''
  let complaints = ''
  child.stderr!.on('data', (text) => (complaints += text))
  const ready = new Promise<void>((resolve, reject) => {
    child.stdout!.on('data', (text) => {
      output += text
      if (output.includes('Ctrl-C stops everything.')) resolve()
    })
    child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${complaints}`)))
  })
  await ready
  return { child, printed: output }
}

async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const exited = once(child, 'exit')
  child.kill(signal)
  assert.deepEqual(await exited, [0, null])
}

async function run(
  args: readonly string[],
  extra: Readonly<Record<string, string>> = {},
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: folder,
    env: { ...environment, ...extra },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr, [code]] = await Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    once(child, 'exit'),
  ])
  return { code, stdout: stdout.join(''), stderr: stderr.join('') }
}

function readSandbox(): Sandbox {
  return JSON.parse(readFileSync(join(dataDir, 'sandbox.json'), 'utf8')) as Sandbox
}

function printedCurl(printed: string): string {
  return printed.slice(printed.indexOf('curl -i'), printed.indexOf('\n\n', printed.indexOf('curl -i')))
}

/** Processes that have the data folder in their command line: PostgreSQL's, above all. */
async function processesOf(path: string): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args'])
  return stdout.split('\n').filter((line) => line.includes(path) && !line.startsWith('ps ')).length
}
