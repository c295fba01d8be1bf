import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { distributeLedger, findWorkersWithJit } from '../../src/db/citus.ts'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import { completeFreeze, findFreeze, freezeLedger, unfreezeLedger } from '../../src/ledger/freeze.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { Holds } from '../../src/ledger/holds.ts'
import { renewLease } from '../../src/ledger/nodes.ts'
import { recordPrices } from '../../src/ledger/prices.ts'
import { createRequestId } from '../../src/ledger/request-id.ts'
import { fromAtomic, parse } from '../../src/money/usdc.ts'
import { CitusCluster } from '../support/citus-cluster.ts'
import { charge, testModel, voided } from '../support/ledger.ts'
import { postChat, startTestService, type TestService } from '../support/service.ts'
import { until } from '../support/until.ts'
import { drill, isWhole } from './drill.ts'

// The ledger on a Citus cluster under load, while shards move and servers die. Each step waits for progress, not for time.

const engine = {
  name: 'Citus',
  program: 'citus.so',
  folders: [18, 17, 16, 15].map((version) => `/usr/lib/postgresql/${version}/lib`),
  package: 'postgresql-16-citus',
  version: (path: string) => path.replace('/lib/', '/share/').replace('lib/citus.so', 'extension/citus.control'),
}
const migrations = fileURLToPath(new URL('../../migrations', import.meta.url))
const name = 'penny'
const partitions = 8
const moves = isWhole ? 20 : 4
const pairsPerStep = isWhole ? 20 : 5
const leaseMs = 6_000
const quote = 100n
const charged = 7n
const movesAtOnceMsMax = 300_000
/** A call waits for its server to come back. */
const waitMsMax = 600_000

drill({
  engine,
  tried: `${moves} shard moves, dead workers and coordinator, a new worker, under load`,
  async run(_found, step) {
    await using stack = new AsyncDisposableStack()
    const cluster = stack.use(await CitusCluster.start(2, { isDurable: true }))
    const url = await cluster.createDatabase(name)
    const database = openDatabase({ url, poolMax: 8, applicationName: 'drill' })
    stack.defer(() => database.close())
    await migrate(database, migrations)
    await distributeLedger(database, partitions)
    assert.deepEqual(await findWorkersWithJit(database), [])
    // The first node writes the price list, for which all workers must be up.
    await (await startNode(url)).stop()
    step(`the ledger is on two workers, with ${partitions} partitions`)
    const load = await Load.start(database)
    stack.defer(() => load.abandon())
    await load.progress(load.accounts)
    step(`load: ${load.accounts.length} clients`)

    for (let turn = 0; turn < moves; turn += 1) {
      await moveShard(database, turn % partitions)
      await load.progress(load.accounts)
      step(`shard move ${turn + 1} of ${moves}; ${load.pairs} holds and ends`)
    }

    const [dead] = cluster.workers
    const places = await placesOf(database)
    const living = load.accounts.filter(({ payer }) => places.get(payer.partition) !== dead!.port)
    assert.ok(living.length > 0 && living.length < load.accounts.length, 'accounts lie on both workers')
    await cluster.kill(dead!)
    step('killed a worker')
    // Longer than a lease: with leases on all workers nobody would be served any more.
    await pause(2 * leaseMs)
    await load.progress(living)
    step(`${living.length} accounts on the other worker are served after two leases`)
    await serveWithNewNode(url, load.accounts, living)
    await load.progress(living)
    step('a node started beside the dead worker')
    await freezeLedger(database, 'drill')
    assert.equal(await findFreeze(database), 'drill')
    await until(() => load.isRefused(living[0]!))
    await unfreezeLedger(database)
    await load.progress(living)
    step('frozen and unfrozen beside the dead worker')
    // Frozen again, until the worker is back and the audit has told all of them.
    await freezeLedger(database, 'drill')
    await cluster.restart(dead!)
    await until(() =>
      completeFreeze(database).then(
        () => true,
        () => false,
      ),
    )
    await until(() => load.isRefused(load.accounts[0]!))
    await unfreezeLedger(database)
    await load.progress(load.accounts)
    step('the worker is back, and all accounts are served')

    await cluster.kill(cluster.coordinator)
    await cluster.restart(cluster.coordinator)
    await load.progress(load.accounts)
    step('the coordinator was killed and is back')

    const added = await cluster.startWorker()
    await cluster.addWorker(added, name)
    assert.deepEqual(await findWorkersWithJit(database), [])
    // A command that lacks the service's LEDGER_PARTITIONS must not change how they are spread.
    await distributeLedger(database, 1)
    step('added a worker, rebalancing')
    await database.query('select citus_rebalance_start()')
    await until(async () => {
      await load.progress(load.accounts)
      const [job] = await database.query<{ state: string }>('select state from citus_rebalance_status()')
      return job === undefined || job.state === 'finished'
    })
    const spread = [...Map.groupBy((await placesOf(database)).values(), (port) => port).values()].map(
      (all) => all.length,
    )
    await load.progress(load.accounts)
    step(`rebalanced: partitions ${spread.join('/')}`)

    await load.stop()
    assert.deepEqual(await load.findDifferences(database), [], 'what was charged is not what was answered')
    assert.deepEqual(await findViolations(database), [])
    assert.equal(
      Math.max(...spread) - Math.min(...spread) <= 1 && spread.length === 3,
      true,
      `partitions lie ${spread}`,
    )
    return `${load.pairs} holds and ends, audit clean, ${living.length} of ${load.accounts.length} accounts served beside a dead worker, also by a node that started then; frozen and unfrozen beside it; partitions ${spread.join('/')} after the rebalance`
  },
})

function startNode(databaseUrl: string): Promise<TestService> {
  return startTestService({ besideOf: { databaseUrl }, environment: { LEDGER_PARTITIONS: String(partitions) } })
}

/** A node that starts although a worker is down serves the accounts on the others. */
async function serveWithNewNode(
  url: string,
  accounts: readonly LoadedAccount[],
  living: readonly LoadedAccount[],
): Promise<void> {
  const node = await startNode(url)
  try {
    const lost = accounts.find((account) => !living.includes(account))!
    const body = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1 }
    const [served, refused] = await Promise.all([living[0]!, lost].map(({ secret }) => postChat(node, secret, body)))
    assert.deepEqual([served!.status, refused!.status], [200, 503])
    living[0]!.elsewhere += BigInt(served!.headers.get('x-router-charged-usdc')!)
  } finally {
    await node.stop()
  }
}

/** The worker's port, by partition. */
async function placesOf(database: Database): Promise<ReadonlyMap<number, number>> {
  const rows = await database.query<{ partition: number; port: number }>(
    `select p as partition, n.nodeport as port from generate_series(0, ${partitions - 1}) p
       join pg_dist_shard s on s.logicalrelid = 'accounts'::regclass
        and worker_hash(p::smallint) between s.shardminvalue::int and s.shardmaxvalue::int
       join pg_dist_placement x on x.shardid = s.shardid join pg_dist_node n on n.groupid = x.groupid`,
  )
  return new Map(rows.map(({ partition, port }) => [partition, port]))
}

/** To the other worker. */
async function moveShard(database: Database, partition: number): Promise<void> {
  await database.transaction(
    (connection) =>
      connection.query(
        `select citus_move_shard_placement(s.shardid, n.nodename, n.nodeport, o.nodename, o.nodeport, 'force_logical')
           from pg_dist_shard s join pg_dist_placement x on x.shardid = s.shardid join pg_dist_node n on n.groupid = x.groupid
           join pg_dist_node o on o.shouldhaveshards and o.groupid <> n.groupid
          where s.logicalrelid = 'accounts'::regclass
            and worker_hash($1::smallint) between s.shardminvalue::int and s.shardmaxvalue::int limit 1`,
        [partition],
      ),
    { statementMaxMs: movesAtOnceMsMax },
  )
}

/** `elsewhere`: what another node has charged. */
type LoadedAccount = { readonly payer: Payer; readonly secret: string; pairs: number; elsewhere: bigint }

/** A client per account, which holds and ends one request after the other. */
class Load {
  readonly accounts: readonly LoadedAccount[]
  readonly #holds: Holds
  readonly #clients: Promise<void>[]
  readonly #lease: NodeJS.Timeout
  #stopped = false

  static async start(database: Database): Promise<Load> {
    await recordPrices(database, 'test', [testModel], 0n)
    const node = randomUUID()
    await renewLease(database, node, leaseMs)
    const lease = setInterval(() => void renewLease(database, node, leaseMs).catch(() => {}), leaseMs / 3)
    const holds = new Holds({
      database,
      node,
      priceVersion: 'test',
      inFlightCap: parse('1000'),
      waitMsMax,
      spansPartitions: false,
    })
    const accounts: LoadedAccount[] = []
    for (let number = 0; number < 2 * partitions; number += 1) {
      const [partition, id] = [number % partitions, randomUUID()]
      await database.query('insert into accounts (partition, id, name) values ($1, $2, $3)', [partition, id, 'drill'])
      const deposit = { partition, id: randomUUID(), accountId: id, amount: parse('1000'), source: 'drill' }
      await creditDeposit(database, deposit)
      const key = await createKey(database, { partition, accountId: id, name: 'drill' })
      const payer = { partition, accountId: id, keyId: key.id }
      accounts.push({ payer, secret: key.secret, pairs: 0, elsewhere: 0n })
    }
    return new Load(holds, accounts, lease)
  }

  private constructor(holds: Holds, accounts: readonly LoadedAccount[], lease: NodeJS.Timeout) {
    this.#holds = holds
    this.accounts = accounts
    this.#lease = lease
    this.#clients = accounts.map((account) => this.#ask(account))
  }

  /** Waits until each of these accounts was served some more times. */
  async progress(accounts: readonly LoadedAccount[]): Promise<void> {
    const wanted = new Map(accounts.map((account) => [account, account.pairs + pairsPerStep]))
    await until(async () => accounts.every((account) => account.pairs >= wanted.get(account)!))
  }

  /** Holds that were placed and ended so far. */
  get pairs(): number {
    return this.accounts.reduce((sum, { pairs }) => sum + pairs, 0)
  }

  /** Whether the ledger refuses a hold of this account, as a frozen one does. */
  async isRefused({ payer }: LoadedAccount): Promise<boolean> {
    const requestId = createRequestId(payer.partition, Date.now())
    const call = { requestId, payer, quote: fromAtomic(quote), model: testModel.id, stream: false, maxTokens: 10 }
    const decision = await this.#holds.place(call).catch(() => undefined)
    if (decision === undefined || 'refusal' in decision) return true
    await this.#holds.end(voided(decision.hold))
    return false
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.all(this.#clients)
    await this.#holds.drained()
    clearInterval(this.#lease)
  }

  /** After a failure: nothing more is tried. */
  abandon(): void {
    this.#stopped = true
    clearInterval(this.#lease)
    this.#holds.stop()
  }

  /** Accounts whose books are not what the clients saw. */
  async findDifferences(database: Database): Promise<readonly unknown[]> {
    const rows = await database.query<{ id: string; charged: bigint; held: bigint }>(
      'select id, charged, held from accounts',
    )
    const byId = new Map(this.accounts.map((account) => [account.payer.accountId, account]))
    return rows.filter(
      ({ id, charged: sum, held }) =>
        held !== 0n || sum !== BigInt(byId.get(id)!.pairs) * charged + byId.get(id)!.elsewhere,
    )
  }

  async #ask(account: LoadedAccount): Promise<void> {
    const { payer } = account
    while (!this.#stopped) {
      const requestId = createRequestId(payer.partition, Date.now())
      const call = { requestId, payer, quote: fromAtomic(quote), model: testModel.id, stream: false, maxTokens: 10 }
      const decision = await this.#holds.place(call).catch(() => undefined)
      // The lease lapsed, as on a slow machine: nothing is held.
      if (decision === undefined) continue
      if ('refusal' in decision) {
        assert.equal(decision.refusal.code, 'ledger_frozen')
        continue
      }
      await this.#holds.end(charge(decision.hold, charged))
      account.pairs += 1
    }
  }
}
