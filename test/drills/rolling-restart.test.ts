import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openAccounts } from '../faults/load.ts'
import { isRunning, type NodeProcess, startNode } from '../faults/node-process.ts'
import { assertBooksClosed } from '../support/audit.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { completed, created, type ScriptedUpstream, startScriptedUpstream, text } from '../support/scripted-upstream.ts'
import { withoutTools } from '../support/service.ts'
import { untilFits } from '../support/until.ts'
import { drill, isWhole, type Step } from './drill.ts'
import type { Engine, FoundEngine } from './engine.ts'
import { freePort } from './free-port.ts'

// Two web processes behind a load balancer are restarted one after the other, as docs/runbooks/upgrade.md says, while clients ask for
// streams and buffered answers. The configurations are the ones in deploy/, with other addresses and without TLS.

const requestsMin = isWhole ? 3_000 : 100
const clients = isWhole ? 12 : 6
/** Checks every second, two in a row: longer than that. */
const shutdownDelayMs = 4_000
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
  /** Writes the configuration, and returns the arguments that start the balancer in the foreground. */
  readonly configure: (ports: Ports, place: string) => readonly string[]
}

const balancers: readonly Balancer[] = [
  {
    engine: { name: 'nginx', program: 'nginx', package: 'nginx-light', version: '-v' },
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
    configure({ front, nodes }, place) {
      const file = join(place, 'Caddyfile')
      const text = shipped('Caddyfile')
        .replace(/^router\.example\.com/m, `http://127.0.0.1:${front}`)
        .replaceAll('127.0.0.1:8402', nodes.map((port) => `127.0.0.1:${port}`).join(' '))
      writeFileSync(file, `{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n${text}`)
      return ['run', '--adapter', 'caddyfile', '--config', file]
    },
  },
]

for (const { engine, configure } of balancers) {
  drill({
    engine,
    tried: `rolling restarts of two web processes, streamed and buffered requests`,
    run: (found, step) => restartUnderTraffic(found, configure, step),
  })
}

async function restartUnderTraffic(engine: FoundEngine, configure: Balancer['configure'], step: Step): Promise<string> {
  const place = mkdtempSync(join(folder, 'balancer-'))
  const ports: Ports = { front: await freePort(), nodes: [await freePort(), await freePort()] }
  const nodes = await Promise.all(ports.nodes.map((port) => startWeb(port)))
  const balancer = spawn(engine.path, configure(ports, place), {
    cwd: place,
    env: { ...process.env, HOME: place, XDG_DATA_HOME: place, XDG_CONFIG_HOME: place },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  running.add(balancer)
  let said = ''
  balancer.stderr!.on('data', (chunk) => (said = (said + chunk).slice(-4_000)))
  try {
    const readyUrl = `http://127.0.0.1:${ports.front}/readyz`
    const isReady = async () => {
      if (balancer.exitCode !== null) throw new Error(`the load balancer ended: ${said}`)
      return (await fetch(readyUrl)).status === 200
    }
    await untilFits(isReady, (ready) => ready)
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
    assert.deepEqual(failures.slice(0, 10), [], `${failures.length} of ${traffic.count()} failed. ${said}`)
    return `0 of ${traffic.count()} requests failed in ${restarts} restarts`
  } finally {
    for (const node of nodes) node.signal('SIGTERM')
    await Promise.all(nodes.map((node) => node.exited))
    const ended = once(balancer, 'exit')
    if (balancer.exitCode === null && balancer.kill('SIGTERM')) await ended
    running.delete(balancer)
  }
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
