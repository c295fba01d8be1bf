import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { parse } from 'yaml'
import { openAccounts } from '../faults/load.ts'
import { isRunning, startNode } from '../faults/node-process.ts'
import { preparePenny } from '../support/penny-command.ts'
import { testDatabase } from '../support/postgres.ts'
import { completed, created, startScriptedUpstream, text, type UpstreamExchange } from '../support/scripted-upstream.ts'
import { until } from '../support/until.ts'
import { drill } from './drill.ts'
import { freePort } from './free-port.ts'

// A Prometheus with the shipped configuration scrapes two services: a whole sandbox, which is well, and a web process on a database
// of its own, which is made to misbehave. The rules are the shipped ones; only the times that a condition must last are shorter.

const engine = { name: 'Prometheus', program: 'prometheus', package: 'prometheus', version: '--version' }
const shipped = (file: string) => readFileSync(fileURLToPath(new URL(`../../deploy/${file}`, import.meta.url)), 'utf8')
const preloaded = (file: string) => new URL(file, import.meta.url).href
const hourMs = 3_600_000

drill({
  engine,
  tried: 'every shipped alert fires, none while all is well; every query of the dashboard returns series',
  async run({ path }, step) {
    await using stack = new AsyncDisposableStack()
    const ports = { sandbox: await freePort(), web: await freePort() }
    const prometheus = await Prometheus.start(path, Object.values(ports), stack)
    const sandbox = await startSandbox(ports.sandbox, stack)
    const web = await startWeb(ports.web, stack)
    await sandbox.ask('What is a penny?')
    await sandbox.ask('Search the web for pennies')
    await web.ask()
    await prometheus.untilCalm()
    step('calm: no alert while all is well')

    const fired = new Set<string>()
    let sinceMs = Date.now()
    /** Waits until all of them have fired since the last call: the cause of one may pass while another is waited for. */
    const fires = async (...expected: readonly string[]) => {
      await until(async () => {
        const firing = await prometheus.firedSince(sinceMs)
        return expected.every((name) => firing.has(name))
      })
      for (const name of expected) fired.add(name)
      step(`fired: ${expected.join(', ')}`)
      sinceMs = Date.now()
    }

    await web.failUpstream()
    await fires('PennyUpstreamErrors')
    await web.lockAccounts()
    await fires('PennySlowLedger')
    const endHeld = await web.holdForLong()
    await fires('PennyHoldTooOld')
    await endHeld()
    await fires('PennyCommitsLost', 'PennyLedgerImbalance', 'PennyLedgerFrozen')
    await web.age()
    await fires(
      ...['PennyInsolvent', 'PennySellerShort', 'PennySettlementLag', 'PennyPaymentsNotMade', 'PennyPaymentsFailed'],
      ...[
        'PennyRelayerGasLow',
        'PennyDepositsWaiting',
        'PennyWithdrawalWaiting',
        'PennyChainBehind',
        'PennyWebhooksLate',
      ],
    )
    web.toggleBusy()
    await fires('PennyEventLoopBusy')
    web.toggleBusy()

    await sandbox.stop()
    await fires('PennyDown', 'PennySolvencyNotChecked')
    // Its audits are four hours old.
    const late = { NODE_OPTIONS: `--import=${preloaded('../faults/wrong-clock.ts')}`, WRONG_CLOCK: String(-4 * hourMs) }
    await sandbox.start({ ...late, FULL_AUDIT_MS: '1000' })
    await fires('PennyWholeAuditNotRun')
    await web.loseDatabase()
    await fires('PennyDatabaseAway')
    await web.stop()
    await fires('PennyAuditNotRun')

    const alerts = namesOf(shipped('prometheus/alerts.yaml'))
    assert.deepEqual([...fired].sort(), alerts.toSorted())
    const queries = dashboardQueries()
    const empty: string[] = []
    for (const query of queries) if (!(await prometheus.hasNumbers(query))) empty.push(query)
    assert.deepEqual(empty, [], 'queries of the dashboard without a number')
    return `${fired.size} of ${alerts.length} alerts fired, 0 while all was well; ${queries.length} of ${queries.length} queries return series`
  },
})

type Rules = { readonly groups: readonly { readonly rules: readonly { readonly alert: string }[] }[] }

function namesOf(rules: string): readonly string[] {
  return (parse(rules) as Rules).groups.flatMap((group) => group.rules.map(({ alert }) => alert))
}

function dashboardQueries(): readonly string[] {
  type Panel = { readonly targets?: readonly { readonly expr: string }[] }
  const { panels } = JSON.parse(shipped('grafana/penny.json')) as { readonly panels: readonly Panel[] }
  return panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
}

type Answer<Data> = { readonly status: string; readonly error?: string; readonly data: Data }
type Alerts = { readonly alerts: readonly unknown[] }
type Series = {
  readonly metric: Readonly<Record<string, string>>
  readonly values: readonly (readonly [number, string])[]
}
type Matrix = { readonly result: readonly Series[] }

/** The server, asked over its HTTP interface as Grafana asks it. */
class Prometheus {
  readonly #url: string
  readonly #startedMs = Date.now()

  static async start(path: string, targets: readonly number[], stack: AsyncDisposableStack): Promise<Prometheus> {
    const folder = mkdtempSync(join(tmpdir(), 'penny-prometheus-'))
    stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }))
    const configuration = shipped('prometheus/prometheus.yml')
      .replaceAll(/interval: 15s/g, 'interval: 1s')
      .replace('penny:8402', targets.map((port) => `127.0.0.1:${port}`).join(', '))
    writeFileSync(join(folder, 'prometheus.yml'), configuration)
    writeFileSync(join(folder, 'alerts.yaml'), shipped('prometheus/alerts.yaml').replaceAll(/for: \d+m/g, 'for: 2s'))
    const address = `127.0.0.1:${await freePort()}`
    const files = [`--config.file=${folder}/prometheus.yml`, `--storage.tsdb.path=${folder}/data`]
    const child = spawn(path, [...files, `--web.listen-address=${address}`], { stdio: 'ignore' })
    stack.defer(() => end(child, 'SIGTERM'))
    return new Prometheus(`http://${address}`)
  }

  private constructor(url: string) {
    this.#url = url
  }

  async firedSince(ms: number): Promise<ReadonlySet<string>> {
    const series = await this.#range('ALERTS{alertstate="firing"}', ms)
    return new Set(series.map(({ metric }) => metric.alertname!))
  }

  /** Until both services are scraped and healthy, and no alert is pending or firing. */
  async untilCalm(): Promise<void> {
    const isHealthy = async () =>
      (await this.hasNumbers('count(up == 1) == 2')) && (await this.hasNumbers('penny_solvent == 1'))
    await until(async () => (await isHealthy()) && (await this.#ask<Alerts>('/api/v1/alerts')).alerts.length === 0)
  }

  /** Whether the query had a number at any time since the start. A quantile of nothing is NaN. */
  async hasNumbers(query: string): Promise<boolean> {
    const series = await this.#range(query, this.#startedMs)
    return series.some(({ values }) => values.some(([, value]) => Number.isFinite(Number(value))))
  }

  async #range(query: string, sinceMs: number): Promise<Matrix['result']> {
    const [start, end] = [sinceMs / 1_000, Date.now() / 1_000].map(String)
    const parameters = new URLSearchParams({ query, start: start!, end: end!, step: '1' })
    return (await this.#ask<Matrix>(`/api/v1/query_range?${parameters}`)).result
  }

  async #ask<Data>(path: string): Promise<Data> {
    const response = await until(() => fetch(`${this.#url}${path}`).catch(() => undefined))
    const answer = (await response.json()) as Answer<Data>
    if (answer.status !== 'success') throw new Error(`Prometheus refuses ${path}: ${answer.error}`)
    return answer.data
  }
}

/** The whole service with its stand-ins: what it shows is how a healthy one looks. */
async function startSandbox(port: number, stack: AsyncDisposableStack) {
  const penny = preparePenny()
  stack.defer(() => penny.remove())
  let service: ChildProcess | undefined
  const stop = async () => {
    if (service !== undefined) await end(service, 'SIGTERM')
  }
  const start = async (environment: Readonly<Record<string, string>> = {}) => {
    service = await penny.start({ PORT: String(port), FULL_AUDIT_MS: '2000', ...environment })
  }
  stack.defer(stop)
  await start()
  const ask = async (content: string) => {
    const { base_url: baseUrl, api_key: apiKey } = penny.sandbox()
    const answer = await post(baseUrl, apiKey, { messages: [{ role: 'user', content }] })
    assert.equal(answer.status, 200, await answer.text())
  }
  return { ask, start, stop }
}

/** A web process, its database and its upstream, and what can go wrong with them. */
async function startWeb(port: number, stack: AsyncDisposableStack) {
  const ledger = await testDatabase()
  stack.defer(() => ledger.drop())
  const { accountIds, apiKeys } = await openAccounts(ledger.database, 2)
  const upstream = await startScriptedUpstream()
  stack.defer(() => upstream.close())
  const finish = (exchange: UpstreamExchange) => {
    exchange.send(text('word '), completed())
    exchange.end()
  }
  const answer = (exchange: UpstreamExchange) => {
    exchange.send(created)
    finish(exchange)
  }
  upstream.answer = answer
  const dataDir = mkdtempSync(join(tmpdir(), 'penny-alerts-'))
  stack.defer(() => rmSync(dataDir, { recursive: true, force: true, maxRetries: 10 }))
  const node = await startNode({
    ...{ dataDir, databaseUrl: ledger.url, upstreamUrl: upstream.url, port },
    ...{ leaseMs: 15_000, checkpointMs: 2_000, drainMs: 0 },
    environment: { AUDIT_MS: '1000', NODE_OPTIONS: `--import=${preloaded('busy-on-signal.ts')}` },
  })
  if (!isRunning(node)) throw new Error(`a node does not start: ${node.complaint}`)
  const stop = async () => {
    node.signal('SIGTERM')
    await node.exited
  }
  stack.defer(stop)
  const ask = () => post(`http://127.0.0.1:${port}/v1`, apiKeys[0]!, { messages: [{ role: 'user', content: 'Hi' }] })
  return {
    stop,
    async ask() {
      assert.equal((await ask()).status, 200)
    },
    async failUpstream() {
      upstream.answer = ({ outgoing }) => void outgoing.writeHead(500).end()
      for (let count = 0; count < 4; count += 1) assert.notEqual((await ask()).status, 200)
      upstream.answer = answer
    },
    /** Another session has the accounts for longer than half a second. */
    async lockAccounts() {
      const asked = await ledger.database.transaction(async (connection) => {
        await connection.query('select from accounts for update')
        const waiting = [ask(), ask()]
        await connection.query('select pg_sleep(2)')
        return waiting
      })
      for (const response of await Promise.all(asked)) assert.equal(response.status, 200)
    },
    /** A request that was held long ago and still runs. @returns what ends it, after the database has forgotten the hold */
    async holdForLong() {
      const count = upstream.exchanges.length
      upstream.answer = (exchange) => exchange.send(created)
      const asked = ask()
      const exchange = await until(() => upstream.exchanges[count])
      await ledger.database.execute(`update holds set created_at = created_at - interval '26 minutes'`)
      return async () => {
        // As after a failover that lost commits.
        await ledger.database.execute('delete from holds')
        finish(exchange)
        await asked
        // Only accounts in use are audited often. Refused if the audit has already found it.
        upstream.answer = answer
        await ask()
      }
    },
    age: () => ledger.database.execute(ageEverything(accountIds[1]!)),
    /** Busy when it was idle, and the other way round. */
    toggleBusy: () => node.signal('SIGUSR2'),
    loseDatabase: () => closeDatabase(ledger.url, stack),
  }
}

/** Money that is stuck on its way, a chain that is not read, and a comparison with it that failed. */
function ageEverything(accountId: string): string {
  const old = `now() - interval '1 day'`
  return `
    insert into solvency (report, ok, checked_at)
    values ('{"short": [{"address": "0x1"}], "seller_short_atomic": "5"}', false, ${old});
    insert into payments (partition, account_id, number, first_entry, last_entry, value, epoch, state, created_at, authorized_at, changed_at)
    select 0, gen_random_uuid(), 1, 1, 1, 5, 0, state, ${old}, ${old}, ${old} from unnest('{submitted,failed}'::text[]) as state;
    update accounts set unpaid_since = ${old}, charged = charged + 1 where id = '${accountId}';
    update ledger_state set settle_after_ms = 1000, settle_latest_ms = 1000, settle_min = 1;
    insert into process_metrics (name, value) values ('relayer_gas_micro_usdc', 5);
    insert into sweeps (partition, id, account_id, amount, nonce, state, created_at)
    values (0, gen_random_uuid(), gen_random_uuid(), 5, 0, 'sent', ${old});
    insert into transfers (partition, id, kind, amount, counterparty, state, created_at) values (0, gen_random_uuid(), 'payout', 5, '0x' || repeat('1', 40), 'sent', ${old});
    insert into chain_cursors (name, block, changed_at) values ('deposits', 1, ${old});
    insert into webhook_endpoints (partition, id, account_id, url, types, secret, sent_to, due_at)
    select partition, gen_random_uuid(), id, 'https://example.com', '{request.completed}', decode(repeat('00', 24), 'hex'), 0, ${old}
      from accounts where id = '${accountId}';
    insert into events (partition, account_id, number, id, type, data, created_at)
    select partition, id, 1, gen_random_uuid(), 'request.completed', '{}', ${old} from accounts where id = '${accountId}';
    update accounts set events = 1 where id = '${accountId}'`
}

/** Ends all connections and allows no new ones. */
async function closeDatabase(url: string, stack: AsyncDisposableStack): Promise<void> {
  const server = new URL(url)
  const name = server.pathname.slice(1)
  server.pathname = '/postgres'
  const client = new pg.Client({ connectionString: server.href })
  await client.connect()
  stack.defer(async () => {
    await client.query(`alter database ${name} with allow_connections true`)
    await client.end()
  })
  await client.query(`alter database ${name} with allow_connections false`)
  await client.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [name])
}

function post(baseUrl: string, apiKey: string, body: object): Promise<Response> {
  return fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill(signal)
  await exited
}
