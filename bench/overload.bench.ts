import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '../src/config/config.ts'
import type { Database } from '../src/db/database.ts'
import { startEmbeddedPostgres } from '../src/db/embedded-postgres.ts'
import { createKey } from '../src/identity/api-keys.ts'
import { createAccount } from '../src/ledger/accounts.ts'
import { creditDeposit } from '../src/ledger/deposits.ts'
import { parse } from '../src/money/usdc.ts'
import { startService } from '../src/run/service.ts'
import type { CrowdOrder, CrowdReady, CrowdResult } from './overload-crowd.ts'
import type { Bench } from './run.ts'

const requestsMax = 100
const rounds = 3
/** One account alone may not have all requests in progress. */
const accounts = 20

/**
 * Compares as many clients as the service serves concurrently with five times as many, in alternating rounds of one run: the answers per
 * second must not decrease under more load.
 */
export const overloadBench: Bench = {
  title: 'answers per second at one and at five times the load that is served at once',
  async run(progress) {
    const dataDir = mkdtempSync(join(tmpdir(), 'penny-bench-'))
    await using stack = new AsyncDisposableStack()
    stack.defer(() => rmSync(dataDir, { recursive: true, force: true }))
    const postgres = await startEmbeddedPostgres({ dataDir })
    stack.defer(() => postgres.stop())
    const crowd = fork(new URL('./overload-crowd.ts', import.meta.url), { execArgv: [] })
    stack.defer(() => void crowd.kill())
    const [{ upstreamUrl }] = (await once(crowd, 'message')) as [CrowdReady]
    const service = await startService(
      readConfig({
        PORT: '0',
        DATA_DIR: dataDir,
        DATABASE_URL: postgres.url,
        UPSTREAM_BASE_URL: upstreamUrl,
        LOG_LEVEL: 'silent',
        ROLES: 'web',
        UNSETTLED_CAP_USDC: '1000000',
        IN_FLIGHT_CAP_USDC: '100000',
        REQUESTS_MAX: String(requestsMax),
      }),
      () => {},
    )
    stack.defer(() => service.stop())
    const apiKeys = await Promise.all(Array.from({ length: accounts }, () => openAccount(service.database)))
    const rows = []
    for (let round = 0; round < rounds; round += 1) {
      for (const load of [1, 5]) {
        progress(`round ${round + 1} of ${rounds}, ${load} × ${requestsMax} clients`)
        const order: CrowdOrder = { origin: service.publicUrl, apiKeys, clients: load * requestsMax }
        crowd.send(order)
        const [result] = (await once(crowd, 'message')) as [CrowdResult]
        rows.push({ load, clients: order.clients, ...result })
      }
    }
    return rows
  },
}

async function openAccount(database: Database): Promise<string> {
  const { id, partition } = await createAccount(database, 'bench', 1)
  await creditDeposit(database, { partition, id, accountId: id, amount: parse('1000000'), source: 'bench' })
  const { secret } = await createKey(database, { partition, accountId: id, name: 'bench' })
  return secret
}
