import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../src/db/database.ts'
import { findViolations } from '../src/ledger/audit.ts'
import { chatBody } from './parts/chat-body.ts'
import { type Load, openLine } from './parts/open-line.ts'
import { cpuMs } from './parts/process-usage.ts'
import { round } from './parts/rounds.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

const warmUpMs = 10_000
const connections = 64
const lookMs = 500

type Scenario = { readonly accounts: number; readonly dueMs: number; readonly loadMs: number }

/** Due after 5 s, payments have to keep pace twelve times as fast as in production, where a charge is due after a minute. */
const scenarios: readonly Scenario[] = [
  { accounts: 1, dueMs: 5_000, loadMs: 60_000 },
  { accounts: 100, dueMs: 5_000, loadMs: 60_000 },
  { accounts: 100, dueMs: 60_000, loadMs: 180_000 },
]

/**
 * The highest load that the machine serves, with everything that settles it on the same cores: whether payments keep pace, how many
 * requests share one, and what they cost beside the requests themselves. The unsettled cap is as in production, so that a service
 * that falls behind answers 503.
 */
export const settlementBench: Bench = {
  title: 'payments under the highest load, on one account and on a hundred',
  async run(progress, { scale }) {
    const rows = []
    for (const scenario of scenarios) {
      const { accounts, dueMs, loadMs } = scenario
      progress(`${accounts} accounts for ${(loadMs * scale) / 1000} s, payments due after ${dueMs / 1000} s`)
      rows.push(await measure(scenario, scale))
    }
    return rows
  },
}

async function measure({ accounts, dueMs, loadMs }: Scenario, scale: number) {
  await using stack = new AsyncDisposableStack()
  const { origin, load } = await openLine(stack)
  const service = await startServiceProcess({
    upstreamUrl: `${origin}/v1`,
    settles: true,
    accounts,
    environment: {
      UNSETTLED_CAP_USDC: '5',
      SETTLE_AFTER_MS: String(dueMs),
      // Five seconds in the sandbox, whatever the line above says.
      SETTLE_LATEST_MS: String(dueMs),
    },
  })
  stack.defer(() => service.stop())
  const sessions = new Map<number, number>()
  const read = () => readTotals(service, sessions)
  await ask(load, service, warmUpMs * scale)
  const before = await read()
  const watch = watchUnpaid(service.database, sessions)
  const report = await ask(load, service, loadMs * scale)
  const oldestUnpaidMs = await watch.stop()
  const loaded = await read()
  const endedMs = performance.now()
  await service.settled()
  const settledMs = performance.now() - endedMs
  const after = await read()
  if (after.paid !== after.charged) throw new Error(`${after.paid} was paid for charges of ${after.charged}`)
  const violations = await findViolations(service.database)
  if (violations.length > 0) throw new Error(`the ledger does not balance: ${JSON.stringify(violations)}`)
  const requests = after.entries - before.entries
  const payments = after.payments - before.payments
  const used = (part: keyof CpuTotals) => after.cpu[part] - before.cpu[part]
  const serving = used('web') + used('ledger')
  const settling = used('sign') + used('settle') + used('gateway') + used('chain') + used('sql')
  const perRequest = (ms: number) => round((ms / requests) * 1000)
  return {
    accounts,
    due_ms: dueMs,
    per_second: round(report.requests / report.seconds),
    not_200: report.failures,
    oldest_unpaid_ms: round(oldestUnpaidMs),
    'oldest_unpaid/due': round(oldestUnpaidMs / dueMs),
    payments_per_second: round((loaded.payments - before.payments) / report.seconds),
    requests_per_payment: round(requests / payments),
    settled_after_ms: round(settledMs),
    serving_us: perRequest(serving),
    settling_us: perRequest(settling),
    sign_us: perRequest(used('sign')),
    settle_us: perRequest(used('settle')),
    gateway_us: perRequest(used('gateway')),
    chain_us: perRequest(used('chain')),
    sql_us: perRequest(used('sql')),
    'settling/serving': round(settling / serving),
  }
}

async function ask(load: Load, service: ServiceProcess, durationMs: number) {
  return load.ask({
    url: `${service.baseUrl}/chat/completions`,
    headers: service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
    body: chatBody(),
    connections,
    durationMs,
  })
}

/** CPU time so far, in milliseconds. `sql` is what settlement and gateway used of PostgreSQL, `ledger` the rest of it. */
type CpuTotals = Readonly<Record<'web' | 'ledger' | 'sign' | 'settle' | 'gateway' | 'chain' | 'sql', number>>

/** Totals of the ledger and CPU time so far. Each PostgreSQL session counts for the process that opened it. */
async function readTotals({ database, cpu }: ServiceProcess, sessions: Map<number, number>) {
  const [books] = await database.query<{ charged: bigint; paid: bigint; entries: bigint; payments: bigint }>(
    `select sum(charged - given_back)::bigint as charged, sum(paid)::bigint as paid, sum(entries)::bigint as entries,
            sum(payments)::bigint as payments from accounts`,
  )
  await readSessions(database, sessions)
  const { web, postgres, sign, settle, gateway, sandbox } = cpu()
  const sql = [...sessions.values()].reduce((sum, ms) => sum + ms, 0)
  return {
    charged: books!.charged,
    paid: books!.paid,
    entries: Number(books!.entries),
    payments: Number(books!.payments),
    cpu: { web, ledger: postgres - sql, sign, settle, gateway, chain: sandbox, sql } satisfies CpuTotals,
  }
}

/** What the sessions of settlement and gateway have used. A session that was closed keeps what it had used when it was last seen. */
async function readSessions(database: Database, sessions: Map<number, number>): Promise<void> {
  const open = await database.query<{ pid: number }>(
    `select pid from pg_stat_activity where datname = current_database() and application_name in ('penny-settle', 'penny-gateway')`,
  )
  for (const { pid } of open) sessions.set(pid, Math.max(sessions.get(pid) ?? 0, cpuMs(pid)))
}

/** The greatest age of a charge that no payment covers. Looks after the sessions too: the pools close those that are idle. */
function watchUnpaid(database: Database, sessions: Map<number, number>): { stop(): Promise<number> } {
  let isOver = false
  let oldestMs = 0
  const look = async () => {
    while (!isOver) {
      const [row] = await database.query<{ ms: number | null }>(
        'select extract(epoch from clock_timestamp() - min(unpaid_since))::float8 * 1000 as ms from accounts',
      )
      oldestMs = Math.max(oldestMs, row!.ms ?? 0)
      await readSessions(database, sessions)
      await sleep(lookMs)
    }
  }
  const looking = look()
  return {
    async stop() {
      isOver = true
      await looking
      return oldestMs
    },
  }
}
