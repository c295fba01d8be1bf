import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text as readText } from 'node:stream/consumers'
import { after, before } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openAccounts } from '../faults/load.ts'
import { isRunning, type NodeProcess, startNode } from '../faults/node-process.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { completed, created, type ScriptedUpstream, startScriptedUpstream, text } from '../support/scripted-upstream.ts'
import { withoutTools } from '../support/service.ts'
import { until, untilFits } from '../support/until.ts'
import { drill, isWhole, type Step } from './drill.ts'
import type { Engine, FoundEngine } from './engine.ts'
import { freePort } from './free-port.ts'

// Two web processes behind a load balancer are restarted one after the other, as docs/runbooks/upgrade.md says, while clients ask for
// streams and buffered answers. The configurations are the ones in deploy/, with other addresses and without TLS.

const requestsMin = isWhole ? 3_000 : 100
const clients = isWhole ? 12 : 6
/** Longer than three checks, one a second. */
const shutdownDelayMs = 4_000
/** Of each kind: headers that do not end, bodies that do not end, bodies whose client leaves. */
const slowClients = 100
const words = 6
const wordMs = 20
const folder = mkdtempSync(join(tmpdir(), 'penny-rolling-'))
let ledger: TestDatabase
let upstream: ScriptedUpstream
let apiKeys: readonly string[]
const running = new Set<ChildProcess>()

before(async () => {
  ledger = await testDatabase()
  apiKeys = (await openAccounts(ledger.database, clients)).apiKeys
  upstream = await startScriptedUpstream(async (exchange) => {
    exchange.send(created)
    for (let word = 0; word < words; word += 1) {
      exchange.send(text(`word${word} `))
      await pause(wordMs)
    }
    exchange.send(completed())
    exchange.end()
  })
})
after(async () => {
  try {
    await assertBooksClosed(ledger.database)
  } finally {
    for (const child of running) child.kill('SIGKILL')
    await upstream.close()
    await ledger.drop()
    rmSync(folder, { recursive: true, force: true })
  }
})

type Ports = { readonly front: number; readonly nodes: readonly [number, number] }
type Balancer = {
  readonly engine: Engine
  readonly checksReadiness: boolean
  /** Whether it sends requests to a process that is not ready when it knows none that is. */
  readonly asksUnready: boolean
  /** Writes the configuration, and returns the arguments that start the balancer in the foreground. */
  readonly configure: (ports: Ports, place: string) => readonly string[]
}

const balancers: readonly Balancer[] = [
  {
    engine: { name: 'nginx', program: 'nginx', package: 'nginx-light', version: '-v' },
    checksReadiness: false,
    asksUnready: true,
    configure({ front, nodes }, place) {
      const site = shipped('nginx.conf')
        .replace('listen 443 ssl;', `listen 127.0.0.1:${front};`)
        .replace('listen [::]:443 ssl;', '')
        .replaceAll(/^\s*ssl_certificate.*$/gm, '')
        .replaceAll(/^ {2}server 127\.0\.0\.1:8402(.*);$/gm, (_, options: string) =>
          nodes.map((port) => `  server 127.0.0.1:${port}${options};`).join('\n'),
        )
      const around = `user root;\ndaemon off;\nworker_processes 2;\npid ${place}/pid;\nerror_log ${place}/error.log;\nevents {}\n`
      const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
        .map((n) => `${n}_temp_path ${place}/${n};`)
        .join('\n')
      const file = join(place, 'nginx.conf')
      writeFileSync(file, `${around}http {\naccess_log off;\n${paths}\n${site}\n}\n`)
      return ['-p', place, '-c', file, '-e', `${place}/error.log`]
    },
  },
  {
    engine: { name: 'HAProxy', program: 'haproxy', package: 'haproxy', version: '-v' },
    checksReadiness: true,
    asksUnready: false,
    configure({ front, nodes }, place) {
      const file = join(place, 'haproxy.cfg')
      const text = shipped('haproxy.cfg')
        .replace('bind :80', `bind 127.0.0.1:${front}`)
        .replace('127.0.0.1:8402', `127.0.0.1:${nodes[0]}`)
        .replace('127.0.0.1:8403', `127.0.0.1:${nodes[1]}`)
      writeFileSync(file, text)
      return ['-db', '-f', file]
    },
  },
  {
    engine: { name: 'Caddy', program: 'caddy', package: 'caddy', version: 'version' },
    checksReadiness: true,
    asksUnready: true,
    configure({ front, nodes }, place) {
      const file = join(place, 'Caddyfile')
      const text = shipped('Caddyfile')
        .replace(/^router\.example\.com/m, `http://127.0.0.1:${front}`)
        .replaceAll('127.0.0.1:8402', nodes.map((port) => `127.0.0.1:${port}`).join(' '))
      writeFileSync(file, text.replace(/^\{$/m, '{\n\tadmin off\n\tdefault_bind 127.0.0.1'))
      return ['run', '--adapter', 'caddyfile', '--config', file]
    },
  },
]

for (const balancer of balancers) {
  const { engine } = balancer
  drill({
    engine,
    tried: 'rolling restarts of two web processes, streamed and buffered requests',
    run: (found, step) => restartUnderTraffic(found, balancer, step),
  })
  drill({
    engine,
    tried: 'no process is ready; processes cut requests that they have read: none is sent twice',
    run: (found) => sendOnce(found, balancer),
  })
  drill({
    engine,
    tried: 'clients that send slowly, or leave in the middle of an upload: they are closed, and others are served',
    run: (found) => outwaitSlowClients(found, balancer),
  })
}

async function restartUnderTraffic(engine: FoundEngine, { configure }: Balancer, step: Step): Promise<string> {
  const ports: Ports = { front: await freePort(), nodes: [await freePort(), await freePort()] }
  const nodes = await Promise.all(ports.nodes.map((port) => startWeb(port)))
  const balancer = startBalancer(engine, configure, ports)
  try {
    await untilFits(
      () => balancer.readiness(),
      (status) => status === 200,
    )
    const requestsBefore = await countRequests()
    const traffic = startTraffic(`http://127.0.0.1:${ports.front}/v1/chat/completions`)
    let restarts = 0
    while (restarts < 2 || traffic.count() < requestsMin) {
      const index = restarts % 2
      nodes[index]!.signal('SIGTERM')
      assert.equal((await nodes[index]!.exited).code, 0)
      nodes[index] = await startWeb(ports.nodes[index]!)
      restarts += 1
      step(`restart ${restarts}; ${traffic.count()} of ${requestsMin} requests`)
    }
    const failures = await traffic.stop()
    assert.deepEqual(failures.slice(0, 10), [], `${failures.length} of ${traffic.count()} failed. ${balancer.log()}`)
    assert.equal((await countRequests()) - requestsBefore, traffic.count(), 'each request was served and charged once')
    return `0 of ${traffic.count()} requests failed in ${restarts} restarts`
  } finally {
    for (const node of nodes) node.signal('SIGTERM')
    await Promise.all(nodes.map((node) => node.exited))
    await balancer.stop()
  }
}

/**
 * Stand-ins for two web processes. They fail their checks but answer, as two processes do in a rolling restart when the load balancer
 * has seen the stop of the one and not yet the start of the other. Then they read each request and cut its connection.
 */
async function sendOnce(engine: FoundEngine, { configure, checksReadiness, asksUnready }: Balancer): Promise<string> {
  const received: string[] = []
  const checks = [0, 0]
  let isReady = true
  let cuts = false
  const servers = checks.map((_, index) =>
    createServer(async (request, response) => {
      if (request.url?.startsWith('/readyz')) {
        // The checks of the load balancer, not what this test asks through it.
        if (request.url === '/readyz') checks[index]! += 1
        response.writeHead(isReady ? 200 : 503).end()
        return
      }
      received.push(await readText(request))
      if (cuts) request.socket.destroy()
      else response.end('served')
    }),
  )
  for (const server of servers) await once(server.listen(0, '127.0.0.1'), 'listening')
  const [first, second] = servers.map((server) => (server.address() as AddressInfo).port)
  const ports: Ports = { front: await freePort(), nodes: [first!, second!] }
  const balancer = startBalancer(engine, configure, ports)
  try {
    await untilFits(
      () => balancer.readiness(),
      (status) => status === 200,
    )
    const ask = async (body: string) => {
      const asked = fetch(`http://127.0.0.1:${ports.front}/v1/chat/completions`, { method: 'POST', body })
      return (await asked.catch(() => undefined))?.status
    }
    const setReady = async (ready: boolean) => {
      isReady = ready
      const before = [...checks]
      // When the fourth check begins, the results of three are known.
      if (checksReadiness) await until(() => checks.every((count, index) => count - before[index]! >= 4))
    }
    const bodies = Array.from({ length: 20 }, (_, turn) => `body ${turn}`)
    await setReady(false)
    for (const body of bodies) assert.equal(await ask(body), asksUnready ? 200 : 503, body)
    assert.deepEqual(received, asksUnready ? bodies : [])

    await setReady(true)
    received.length = 0
    cuts = true
    // HAProxy may close the connection instead of an answer; nginx leaves a process alone for a second after such a failure.
    for (const body of bodies) assert.ok(((await ask(body)) ?? 502) >= 500, body)
    assert.ok(received.length > 0)
    assert.deepEqual(received, [...new Set(received)], 'none was sent twice')
    const unready = asksUnready ? 'answered, each sent once' : 'refused with 503, sent to none'
    return `20 requests while no process is ready: ${unready}; 20 that the process cuts: none sent twice`
  } finally {
    await balancer.stop()
    for (const server of servers) server.close().closeAllConnections()
  }
}

/** In front of a stand-in for a web process. What the service itself does with such clients is in `test/e2e/unread-bodies.test.ts`. */
async function outwaitSlowClients(engine: FoundEngine, { configure }: Balancer): Promise<string> {
  let begun = 0
  const server = createServer(async (request, response) => {
    if (request.url?.startsWith('/readyz')) return response.end()
    begun += 1
    // A proxy cuts a request whose client has left.
    await readText(request).then(
      () => response.end('served'),
      () => request.destroy(),
    )
    return response
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const ports: Ports = { front: await freePort(), nodes: [port, port] }
  const balancer = startBalancer(engine, configure, ports)
  try {
    await untilFits(
      () => balancer.readiness(),
      (status) => status === 200,
    )
    const head = 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n'
    const open = (text: string) => Promise.all(Array.from({ length: slowClients }, () => sendPart(ports.front, text)))
    const slow = [...(await open(head)), ...(await open(`${head}\r\n{`))]
    for (const socket of await open(`${head}\r\n{`)) socket.destroy()
    // Not `once`, which throws at a reset.
    const closed = slow.map((socket) => new Promise((resolve) => socket.on('close', resolve)))
    const ask = () => fetch(`http://127.0.0.1:${ports.front}/v1/chat/completions`, { method: 'POST', body: '{}' })
    const answers = await Promise.all(Array.from({ length: 20 }, ask))
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
    await Promise.all(closed)
    assert.equal((await ask()).status, 200)
    assert.equal(begun, answers.length + 1, 'the service saw whole requests only')
    return `${3 * slowClients} slow or leaving clients closed; none of them reached the service`
  } finally {
    await balancer.stop()
    server.close().closeAllConnections()
  }
}

/** A connection on which a part of a request was sent. */
async function sendPart(port: number, text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  // The proxy may reset it.
  socket.on('error', () => {})
  socket.resume()
  await once(socket, 'connect')
  await new Promise((resolve) => socket.write(text, resolve))
  return socket
}

type RunningBalancer = {
  /** The status of `/readyz` through it. */
  readiness(): Promise<number>
  /** The end of what it wrote to stderr. */
  log(): string
  stop(): Promise<void>
}

function startBalancer(engine: FoundEngine, configure: Balancer['configure'], ports: Ports): RunningBalancer {
  const place = mkdtempSync(join(folder, 'balancer-'))
  const child = spawn(engine.path, configure(ports, place), {
    cwd: place,
    env: { ...process.env, HOME: place, XDG_DATA_HOME: place, XDG_CONFIG_HOME: place },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  running.add(child)
  let log = ''
  child.stderr!.on('data', (chunk) => (log = (log + chunk).slice(-4_000)))
  return {
    async readiness() {
      if (child.exitCode !== null) throw new Error(`the load balancer ended: ${log}`)
      return (await fetch(`http://127.0.0.1:${ports.front}/readyz?through`)).status
    },
    log: () => log,
    async stop() {
      const ended = once(child, 'exit')
      if (child.exitCode === null && child.kill('SIGTERM')) await ended
      running.delete(child)
    },
  }
}

async function countRequests(): Promise<number> {
  const [row] = await ledger.database.query<{ count: number }>('select count(*)::integer as count from requests')
  return row!.count
}

/** Ready when this resolves, as an operator would wait for `/readyz` before the next restart. */
async function startWeb(port: number): Promise<NodeProcess> {
  const settings = {
    dataDir: join(folder, `node-${port}`),
    databaseUrl: ledger.url,
    upstreamUrl: upstream.url,
    leaseMs: 15_000,
    checkpointMs: 2_000,
    drainMs: 30_000,
    port,
    shutdownDelayMs,
  }
  const node = await startNode(settings)
  if (!isRunning(node)) throw new Error(`a node does not start: ${node.complaint}`)
  await untilFits(
    () => fetch(`http://127.0.0.1:${port}/readyz`),
    ({ status }) => status === 200,
  )
  return node
}

type Traffic = { count(): number; stop(): Promise<readonly string[]> }

function startTraffic(url: string): Traffic {
  const failures: string[] = []
  let count = 0
  let isOver = false
  const ask = async (client: number) => {
    for (let turn = client; !isOver; turn += 1) {
      const stream = turn % 2 === 0
      const failure = await askOnce(url, apiKeys[client]!, stream)
      count += 1
      if (failure !== undefined) failures.push(`${stream ? 'stream' : 'buffered'}: ${failure}`)
    }
  }
  const asked = apiKeys.map((_, client) => ask(client))
  return {
    count: () => count,
    async stop() {
      isOver = true
      await Promise.all(asked)
      return failures
    },
  }
}

async function askOnce(url: string, apiKey: string, stream: boolean): Promise<string | undefined> {
  const body = JSON.stringify({ stream, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50, ...withoutTools })
  try {
    const response = await fetch(url, {
      method: 'POST',
      body,
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    })
    const answer = await response.text()
    if (response.status !== 200) return `status ${response.status}: ${answer.slice(0, 200)}`
    const last = `word${words - 1} `
    const isWholeAnswer = answer.includes(last) && (!stream || answer.trimEnd().endsWith('data: [DONE]'))
    return isWholeAnswer ? undefined : `cut short: ${answer.slice(-200)}`
  } catch (error) {
    return `${error} ${(error as Error).cause ?? ''}`
  }
}

function shipped(file: string): string {
  return readFileSync(fileURLToPath(new URL(`../../deploy/${file}`, import.meta.url)), 'utf8')
}
