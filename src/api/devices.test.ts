import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { childEnvironment, pennyProgram } from '../../test/support/child-environment.ts'
import { DashboardClient, type Json, signInNew } from '../../test/support/dashboard-client.ts'
import { answers, completed, created, text } from '../../test/support/scripted-upstream.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { waitingPerNetworkMax } from '../identity/device-logins.ts'

// `penny login URL` without a key: a terminal requests a key, a signed-in person confirms it, the terminal gets the key once.

const suite = serviceSuite({ TRUST_PROXY: '1' })

type Started = { device_code: string; user_code: string; verification_uri_complete: string; interval: number }
type State = { status: string; interval: number | null; key: { id: string; secret: string; name: string } | null }

/** A program: it names no origin and has no cookie. */
async function send(path: string, body: object, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${suite.service.origin}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
}

async function start(address = new DashboardClient(suite.service).address): Promise<Started> {
  const response = await send('/api/auth/device', { machine: 'ada@laptop' }, { 'x-forwarded-for': address })
  assert.equal(response.status, 200)
  return (await response.json()) as Started
}

async function poll({ device_code }: Started): Promise<State> {
  return (await (await send('/api/device/poll', { device_code })).json()) as State
}

const expire = ({ user_code }: Started) =>
  suite.service.database.query('update device_logins set expires_at = clock_timestamp() where user_code = $1', [
    user_code.replace('-', ''),
  ])

test('a confirmed login gives its terminal one key, with the terms that the person chose', async () => {
  const person = await signInNew(suite.service)
  const started = await start()
  assert.match(started.user_code, /^[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}$/)
  assert.equal((await poll(started)).status, 'pending')
  const shown = await person.get(`/api/device/${started.user_code.toLowerCase().replace('-', ' ')}`)
  assert.deepEqual([shown.machine, shown.status], ['ada@laptop', 'pending'])
  const terms = { name: 'Ada’s laptop', limit: '2.5', limit_window: 'day', expires_at: '2099-01-01T00:00:00Z' }
  assert.equal((await person.post(`/api/device/${started.user_code}/confirm`, terms)).status, 'confirmed')
  assert.deepEqual((await person.get('/api/keys')).data, [], 'no key before its terminal takes it')
  const { status, key } = await poll(started)
  assert.equal(status, 'confirmed')
  const [made] = (await person.get('/api/keys')).data
  assert.deepEqual(
    [made.id, made.name, made.limit, made.limit_window, made.expires_at],
    [key!.id, 'Ada’s laptop', '2.5', 'day', '2099-01-01T00:00:00.000Z'],
  )
  assert.equal((await poll(started)).status, 'expired', 'the key is handed out once')
  assert.deepEqual(await person.refusal('GET', `/api/device/${started.user_code}`), [404, 'not_found'])
  const { data: log } = await person.get('/api/log')
  const row = log.find(({ event }: Json) => event === 'device_confirmed')
  assert.deepEqual([row.actor.kind, row.facts], ['person', { name: 'ada@laptop' }])
})

test('twenty confirmations and twenty polls at one moment lead to one key', async () => {
  const people = await Promise.all([signInNew(suite.service), signInNew(suite.service)])
  const started = await start()
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      people[index % 2]!.send('POST', `/api/device/${started.user_code}/confirm`, { name: `key ${index}` }),
    ),
  )
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, ...Array(19).fill(404)])
  const states = await Promise.all(Array.from({ length: 20 }, () => poll(started)))
  assert.equal(states.filter(({ key }) => key !== null).length, 1)
  const keys = await Promise.all(people.map((person) => person.get('/api/keys')))
  assert.equal(keys.flatMap(({ data }: Json) => data).length, 1)
})

test('a declined, an expired, a cancelled and an unknown login give no key and cannot be confirmed', async () => {
  const person = await signInNew(suite.service)
  const declined = await start()
  assert.equal((await person.post(`/api/device/${declined.user_code}/decline`)).status, 'declined')
  const expired = await start()
  await expire(expired)
  const cancelled = await start()
  await person.post(`/api/device/${cancelled.user_code}/confirm`, { name: 'too late' })
  assert.equal((await send('/api/device/cancel', { device_code: cancelled.device_code })).status, 204)
  const unknown = { ...expired, user_code: 'BBBB-BBBB', device_code: 'x'.repeat(43) }
  for (const { user_code: code } of [declined, expired, cancelled, unknown]) {
    assert.deepEqual(await person.refusal('POST', `/api/device/${code}/confirm`, { name: 'x' }), [404, 'not_found'])
    assert.deepEqual(await person.refusal('POST', `/api/device/${code}/decline`), [404, 'not_found'])
  }
  const states = [await poll(declined), await poll(expired), await poll(cancelled), await poll(unknown)]
  assert.deepEqual(
    states.map(({ status, key }) => [status, key]),
    [
      ['declined', null],
      ['expired', null],
      ['expired', null],
      ['expired', null],
    ],
  )
  assert.deepEqual((await person.get('/api/keys')).data, [])
})

test('terms that a key cannot have are refused to the person, and the login still waits', async () => {
  const person = await signInNew(suite.service)
  const started = await start()
  for (const terms of [{}, { name: '' }, { name: 'x', limit: '0' }, { name: 'x', expires_at: '2020-01-01T00:00:00Z' }])
    assert.equal((await person.refusal('POST', `/api/device/${started.user_code}/confirm`, terms))[0], 400)
  assert.equal((await poll(started)).status, 'pending')
})

test('the key of an account that was closed after it confirmed is never made', async () => {
  const person = await signInNew(suite.service)
  const started = await start()
  await person.post(`/api/device/${started.user_code}/confirm`, { name: 'laptop' })
  await person.delete('/api/account')
  assert.equal((await poll(started)).key, null)
})

test('only a signed-in person on our own page can answer, and pages of other sites cannot start or poll', async () => {
  const started = await start()
  const person = await signInNew(suite.service)
  const stranger = new DashboardClient(suite.service)
  const path = `/api/device/${started.user_code}`
  assert.deepEqual(await stranger.refusal('GET', path), [401, 'session_required'])
  for (const verb of ['confirm', 'decline']) {
    assert.deepEqual(await stranger.refusal('POST', `${path}/${verb}`, { name: 'x' }), [401, 'session_required'])
    for (const origin of ['https://evil.example', 'null']) {
      const refused = await person.refusal('POST', `${path}/${verb}`, { name: 'x' }, { origin })
      assert.deepEqual(refused, [403, 'cross_site_request'])
    }
  }
  for (const [where, body] of [
    ['/api/auth/device', { machine: 'x' }],
    ['/api/device/poll', { device_code: started.device_code }],
    ['/api/device/cancel', { device_code: started.device_code }],
  ] as const) {
    for (const origin of ['https://evil.example', 'null'])
      assert.equal((await send(where, body, { origin })).status, 403, where)
  }
  assert.equal((await poll(started)).status, 'pending')
})

test('one network has a limited number of waiting logins, also when they start at one moment; others still start', async () => {
  const { address } = new DashboardClient(suite.service)
  const startOne = () => send('/api/auth/device', { machine: 'flood' }, { 'x-forwarded-for': address })
  const answers = await Promise.all(Array.from({ length: waitingPerNetworkMax + 10 }, startOne))
  const refused = answers.filter(({ status }) => status === 429)
  assert.equal(refused.length, 10)
  assert.match(((await refused[0]!.json()) as Json).error.message, /^20 logins from your network are waiting/)
  await start()
  const [first] = answers.filter(({ status }) => status === 200)
  await send('/api/device/cancel', (({ device_code }: Json) => ({ device_code }))(await first!.json()))
  assert.equal((await startOne()).status, 200, 'a cancelled login makes room')
})

test('codes cannot be guessed: a network and an account get few tries', async () => {
  const person = await signInNew(suite.service)
  const statuses = []
  const startedMs = performance.now()
  for (let guess = 0; guess < 40; guess += 1) statuses.push((await person.refusal('GET', '/api/device/BCDFGHJK'))[0])
  assert.deepEqual(new Set(statuses), new Set([404, 429]))
  // Thirty, and one more for every five seconds that have passed: on a slow machine the guesses take a while.
  const triesMax = 30 + Math.ceil((performance.now() - startedMs) / 5_000)
  assert.ok(statuses.filter((status) => status === 404).length <= triesMax)
})

test('a program that polls too early gets slow_down, and the name of a machine cannot show another one', async () => {
  for (const machine of [
    'a\u001b[31mdb',
    'Penny\nconfirm now',
    'Penny\u2028confirm now',
    'a\u202edb',
    'a\u2067db',
    ' ',
  ])
    assert.equal((await send('/api/auth/device', { machine })).status, 400, JSON.stringify(machine))
  const started = (await (await send('/api/auth/device', { machine: 'ada👩‍💻@böb' })).json()) as Started
  assert.deepEqual([(await poll(started)).status, (await poll(started)).interval], ['pending', started.interval + 5])
})

// The command as a customer runs it: a home folder and nothing else.

const homes: string[] = []
afterEach(() => {
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true })
})

function customer(): { readonly home: string; run(...words: string[]): Terminal } {
  const home = mkdtempSync(join(tmpdir(), 'penny-customer-'))
  homes.push(home)
  return { home, run: (...words) => new Terminal(home, words) }
}

class Terminal {
  readonly process: ChildProcess
  stdout = ''
  stderr = ''
  readonly ended: Promise<number | null>

  constructor(home: string, words: readonly string[]) {
    const env = { ...childEnvironment, HOME: home }
    this.process = spawn(process.execPath, [...pennyProgram(), ...words], {
      cwd: home,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.process.stdout!.on('data', (text) => {
      this.stdout += text
    })
    this.process.stderr!.on('data', (text) => {
      this.stderr += text
    })
    this.ended = once(this.process, 'close').then(([code]) => code)
  }

  /** The code that it shows. */
  async code(): Promise<string> {
    for (;;) {
      const shown = this.stderr.match(/confirm the code (\S+):\n\n {2}(\S+)\n/)
      if (shown !== null) {
        assert.equal(shown[2], `${suite.service.origin}/device?code=${shown[1]}`)
        return shown[1]!
      }
      assert.equal(this.process.exitCode, null, this.stderr)
      await once(this.process.stderr!, 'data')
    }
  }
}

const loginFile = (home: string) => join(home, '.config', 'penny', 'login.json')

test('penny login waits for the confirmation, keeps the key for its owner alone, and every customer command works', async () => {
  const person = await signInNew(suite.service, '5')
  const { home, run } = customer()
  const login = run('login', suite.service.origin)
  await person.post(`/api/device/${await login.code()}/confirm`, { name: 'laptop', limit: '1' })
  assert.equal(await login.ended, 0, login.stderr)
  assert.match(login.stdout, /^Logged in to http:\/\/localhost:\d+ with the key "laptop"\. 5 USDC can be spent\./)
  assert.equal(statSync(loginFile(home)).mode & 0o777, 0o600)
  assert.doesNotMatch(login.stdout + login.stderr, /penny_[0-9A-Za-z]{40}/)
  await everyCommandWorks(run)
})

test('every customer command works after a login with a key', async () => {
  const person = await signInNew(suite.service, '5')
  const { secret } = await person.post('/api/keys', { name: 'laptop', limit: '1' })
  const { run } = customer()
  const login = run('login', suite.service.origin, '--key', secret)
  assert.equal(await login.ended, 0, login.stderr)
  await everyCommandWorks(run)
})

async function everyCommandWorks(run: (...words: string[]) => Terminal): Promise<void> {
  suite.upstream.answer = answers(created, text('Hello.'), completed({ input_tokens: 10, output_tokens: 3 }))
  for (const [words, printed] of [
    [['chat', 'Hi', '--no-web', '--max-tokens', '100'], /USDC · \d+ tokens read, \d+ written · req_[0-9a-f]{32}\n$/],
    [['quote', 'Hi', '--no-web', '--max-tokens', '100'], /0\.\d+ USDC/],
    [['balance'], /^4\.\d+ USDC can be spent at http[\s\S]*Key "laptop" \(penny_….{4}\): spent 0\.\d+, .* of 1 left/],
    [['usage'], /\d{4}-\d\d-\d\d +1 /],
    [['logs', 'tail', '--once'], / succeeded .* req_[0-9a-f]{32}/],
    [['keys'], /laptop +active/],
  ] as const) {
    const command = run(...words)
    assert.equal(await command.ended, 0, `${words.join(' ')}: ${command.stderr}`)
    assert.match(command.stdout, printed)
  }
}

test('a second login replaces the first one and says so; one that fails leaves it', async () => {
  const person = await signInNew(suite.service, '5')
  const { home, run } = customer()
  const logins: string[] = []
  for (const name of ['first', 'second']) {
    const login = run('login', suite.service.origin)
    await person.post(`/api/device/${await login.code()}/confirm`, { name })
    assert.equal(await login.ended, 0, login.stderr)
    assert.equal(/This replaces the login to http/.test(login.stdout), name === 'second')
    logins.push(readFileSync(loginFile(home), 'utf8'))
  }
  assert.notEqual(logins[0], logins[1])
  const declined = run('login', suite.service.origin)
  await person.post(`/api/device/${await declined.code()}/decline`)
  assert.equal(await declined.ended, 1)
  assert.match(declined.stderr, /penny: The login was declined in the dashboard\. No key was created\.\n$/)
  const expired = run('login', suite.service.origin)
  await expire({ user_code: await expired.code() } as Started)
  assert.equal(await expired.ended, 1)
  assert.match(expired.stderr, /penny: The code has expired or was used already\. Run penny login again/)
  assert.equal(readFileSync(loginFile(home), 'utf8'), logins[1])
})

test('Ctrl-C while penny login waits cancels the code and leaves nothing behind', async () => {
  const person = await signInNew(suite.service)
  const { home, run } = customer()
  const login = run('login', suite.service.origin)
  const code = await login.code()
  login.process.kill('SIGINT')
  assert.equal(await login.ended, 130)
  assert.match(login.stderr, new RegExp(`Cancelled\\. The code ${code} is no longer valid\\.\\n$`))
  assert.deepEqual(await person.refusal('POST', `/api/device/${code}/confirm`, { name: 'x' }), [404, 'not_found'])
  assert.equal(existsSync(loginFile(home)), false)
})

test('penny login says when no service answers', async () => {
  const { run } = customer()
  const nowhere = run('login', 'http://127.0.0.1:9')
  assert.equal(await nowhere.ended, 1)
  assert.match(nowhere.stderr, /^penny: The service at http:\/\/127\.0\.0\.1:9 does not respond: /)
})
