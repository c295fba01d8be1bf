import { randomUUID } from 'node:crypto'
import { constants, loadavg, setPriority } from 'node:os'
import { createKey } from '../src/identity/api-keys.ts'
import { openSession } from '../src/identity/sessions.ts'
import { createAccount } from '../src/ledger/accounts.ts'
import { findViolations } from '../src/ledger/audit.ts'
import { creditDeposit } from '../src/ledger/deposits.ts'
import { parse } from '../src/money/usdc.ts'
import { entryOf } from '../test/support/people.ts'
import type { HostileOrder, HostileReport } from './hostile-crowd.ts'
import type { HonestOrder, HonestReport } from './hostile-honest.ts'
import { startChild } from './parts/child.ts'
import type { MockReady } from './parts/mock-upstream.ts'
import { pinFamilies, requireTwoCores } from './parts/pin.ts'
import { type ServiceProcess, startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

const quietMs = 30_000
const attackedMs = 60_000
/** Answered before the first measurement, so that compilers and caches are warm in both. */
const warmUpMs = 5_000

const servingCore = 0
const clientsCore = 1

/**
 * A customer's requests, first alone, then while one account without money does everything it can on 100 connections, then beside one
 * that has half a dollar. Their slowest hundredth may take three times as long, and none may get a 503.
 *
 * A real attacker does not run on the service's machine. So the service and PostgreSQL have one core in both phases, and the clients and
 * the mock upstream have the other one. On that core the attacker has the lowest priority: otherwise its own CPU time would delay the
 * customer's clock. Its request rates are in the result: they show how strong the attack was.
 */
export const hostileBench: Bench = {
  title: 'a customer beside one hostile account with 100 connections, without money and with 0.50 USDC',
  async run(progress, { scale }) {
    requireTwoCores()
    await using stack = new AsyncDisposableStack()
    const mock = await startChild<object, MockReady>(new URL('./parts/mock-upstream.ts', import.meta.url), {})
    stack.defer(() => mock.stop())
    const service = await startServiceProcess({
      upstreamUrl: `${mock.ready.origin}/mixed/v1`,
      settles: false,
      accounts: 1,
    })
    stack.defer(() => service.stop())
    const honest = await startChild<object, object, HonestOrder, HonestReport>(
      new URL('./hostile-honest.ts', import.meta.url),
      {},
    )
    stack.defer(() => honest.stop())
    const crowd = await startChild<object, object, HostileOrder, HostileReport>(
      new URL('./hostile-crowd.ts', import.meta.url),
      {},
    )
    stack.defer(() => crowd.stop())
    service.pin(servingCore)
    pinFamilies([mock.pid, honest.pid, crowd.pid], clientsCore)
    setPriority(crowd.pid, constants.priority.PRIORITY_LOW)
    const [apiKey] = service.apiKeys as [string]
    const ask = (durationMs: number) => honest.ask({ baseUrl: service.baseUrl, apiKey, durationMs: durationMs * scale })

    await ask(warmUpMs)
    progress(`alone for ${(quietMs * scale) / 1000} s, load average ${loadavg()[0]!.toFixed(1)}`)
    const alone = await ask(quietMs)
    const beside = async (attacks: HostileOrder['attacks'], balance: string) => {
      const order = await armHostile(service, balance)
      progress(`attacked for ${(attackedMs * scale) / 1000} s, load average ${loadavg()[0]!.toFixed(1)}`)
      const cpuBefore = service.cpu()
      const [attacked, reports] = await Promise.all([
        ask(attackedMs),
        crowd.ask({ ...order, attacks, durationMs: attackedMs * scale }),
      ])
      const cpuAfter = service.cpu()
      progress(
        `CPU of the service's core: web ${cpuAfter.web - cpuBefore.web} ms, PostgreSQL ${cpuAfter.postgres - cpuBefore.postgres} ms`,
      )
      return [
        ...attacked.kinds.map((kind, index) => ({ attacker: attacks, ...compare(alone.kinds[index]!, kind) })),
        ...reports.map(({ name, times, answers }) => ({
          attacker: attacks,
          attack: name,
          times,
          per_second: Math.round(times / ((attackedMs * scale) / 1000)),
          answers,
        })),
      ]
    }
    const rows = [...(await beside('free', '0')), ...(await beside('paying', '0.50'))]
    const violations = await findViolations(service.database)
    if (violations.length > 0) throw new Error(`the ledger does not balance: ${JSON.stringify(violations)}`)
    return rows
  },
}

type Kind = HonestReport['kinds'][number]

function compare(alone: Kind, attacked: Kind) {
  return {
    request: alone.name,
    alone_p50_ms: alone.p50Ms,
    alone_p99_ms: alone.p99Ms,
    attacked_p50_ms: attacked.p50Ms,
    attacked_p99_ms: attacked.p99Ms,
    'p99/alone': Number((attacked.p99Ms / alone.p99Ms).toPrecision(3)),
    answered: attacked.answered,
    not_200: attacked.refused,
  }
}

/** An account with a key and a session. */
async function armHostile({ database, baseUrl }: ServiceProcess, balance: string) {
  const { id: accountId, partition } = await createAccount(database, 'hostile', 1)
  const amount = parse(balance)
  if (amount > 0n) await creditDeposit(database, { id: randomUUID(), partition, accountId, amount, source: 'bench' })
  const { secret, id: keyId } = await createKey(database, { partition, accountId, name: 'hostile' })
  const { token } = await openSession(database, await entryOf(database, { partition, accountId }), 'wallet', 'bench')
  return { baseUrl, apiKey: secret, keyId, sessionToken: token }
}
