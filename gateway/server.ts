import type { Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { type SenderStep, TransactionSender } from '../src/chain/lands-once.ts'
import { ChainNode } from '../src/chain/node.ts'
import type { Database } from '../src/db/database.ts'
import { migrate } from '../src/db/migrate.ts'
import { openUsable, outside, refuseUnusable } from '../src/db/open-usable.ts'
import { reasonOf, UnusableSettingError } from '../src/errors.ts'
import type { Log } from '../src/process/log.ts'
import { Access } from './access.ts'
import { type OnAlarm, withoutRepeats } from './alarm.ts'
import { BatchReceipts } from './batch-receipts.ts'
import { Batches, batchRowsMax } from './batches.ts'
import { Reconciler } from './chain/reconciler.ts'
import { Relayer } from './chain/relayer.ts'
import { Scanner } from './chain/scanner.ts'
import { bindChain, readIdentity } from './chain/state.ts'
import { type Failpoint, type FailpointName, noFailpoint } from './failpoints.ts'
import { ForeignBatches } from './foreign-batches.ts'
import { type JsonServer, startJsonServer } from './json-server.ts'
import { answerFailure, gatewayRoutes } from './routes.ts'
import { gatewayMigrations, schemaUrl } from './schema.ts'
import { type SettleOptions, Settler } from './settle.ts'
import { type GatewayTerms, gatewayTerms } from './terms.ts'
import { Withdrawals } from './withdrawals.ts'
import { Worker } from './worker.ts'
import { WorkerLock } from './worker-lock.ts'

export type GatewayOptions = {
  readonly host: string
  /** 0 for any free port. */
  readonly port: number
  /** The gateway uses its own schema there, `gateway`. */
  readonly databaseUrl: string
  readonly chainRpcUrl: string
  /** Undefined: queried from the node, or known from an earlier start. */
  readonly chainId?: number | undefined
  readonly usdcAddress: string
  readonly gatewayWalletAddress: string
  /** Settles only payments to or from these addresses. */
  readonly payees: readonly string[]
  /** Bearer token of the service: payments can be read only with it. */
  readonly token: string
  /** Pays gas, and owns nothing else. */
  readonly relayerKey: Hex
  /** The block of the contract's deployment, or an earlier one. */
  readonly firstBlock?: number | undefined
  /** How long a transfer waits for others to share its batch. */
  readonly batchMs?: number | undefined
  /** Interval between polls of the chain. */
  readonly pollMs?: number | undefined
  readonly resendMs?: number | undefined
  readonly replaceMs?: number | undefined
  readonly recheckMs?: number | undefined
  readonly reconcileMs?: number | undefined
  /** The maximum age of our view of the chain when a payment is accepted. */
  readonly chainAgeMsMax?: number | undefined
  /** Atomic USDC. A depositor may withdraw less than this once in 12 hours. */
  readonly withdrawalMin?: bigint | undefined
  /** In wei per unit of gas. */
  readonly gasPriceMax?: bigint | undefined
  readonly clock?: (() => number) | undefined
  readonly onAlarm?: OnAlarm | undefined
  readonly onError?: ((error: unknown) => void) | undefined
  readonly failpoint?: Failpoint | undefined
}

export type Gateway = {
  readonly url: string
  readonly port: number
  /** Finishes work in progress. Calls that are stored and not sent wait for the next start. */
  stop(): Promise<void>
}

const senderFailpoints: Readonly<Record<SenderStep, FailpointName>> = {
  stored: 'call_stored',
  sent: 'call_sent',
  receipt_seen: 'receipt_seen',
}
const poolMax = 8
const lockRetryMs = 1_000

/** Starts the gateway: Circle Gateway's HTTP interface over our own contract. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const url = await refuseUnusable(outside, () => schemaUrl(options.databaseUrl))
  const pool = { url, poolMax, applicationName: 'penny-gateway' }
  const database = await openUsable(pool, outside, (opened) => migrate(opened, gatewayMigrations))
  try {
    const terms = await bindTerms(options, database)
    const node = new ChainNode(options.chainRpcUrl, { chainId: terms.chainId })
    return await compose(options, { terms, node, database, url })
  } catch (error) {
    await database.close()
    throw error
  }
}

async function bindTerms(options: GatewayOptions, database: Database): Promise<GatewayTerms> {
  const chainId = options.chainId ?? (await readIdentity(database))?.chainId ?? (await askChainId(options))
  const terms = gatewayTerms(chainId, options.usdcAddress, options.gatewayWalletAddress)
  await bindChain(database, terms, BigInt(options.firstBlock ?? 0))
  return terms
}

/** Needed only at the first start: afterwards the database knows it. */
function askChainId({ chainRpcUrl }: GatewayOptions): Promise<number> {
  return new ChainNode(chainRpcUrl).chainId().catch((error: unknown) => {
    throw new UnusableSettingError('CHAIN_RPC_URL', reasonOf(error, chainRpcUrl), 'Check the URL and its key.', error)
  })
}

type GatewayParts = {
  readonly terms: GatewayTerms
  readonly node: ChainNode
  readonly database: Database
  readonly url: string
}

async function compose(options: GatewayOptions, { terms, node, database, url }: GatewayParts): Promise<Gateway> {
  const { clock = Date.now, failpoint = noFailpoint, onError = () => {} } = options
  const { chainAgeMsMax = 600_000, batchMs = 2_000 } = options
  const onAlarm = withoutRepeats(options.onAlarm ?? (() => {}), clock)
  const shared = { database, node, terms, clock, onAlarm, failpoint }
  const sender = new TransactionSender({
    node,
    clock,
    chainId: terms.chainId,
    account: privateKeyToAccount(options.relayerKey),
    resendMs: options.resendMs,
    replaceMs: options.replaceMs,
    gasPriceMax: options.gasPriceMax,
    onProblem: onAlarm,
    onStep: (step) => failpoint(senderFailpoints[step]),
  })
  const relayer = new Relayer({ ...shared, sender })
  const withdrawals = new Withdrawals({ ...shared, relayer, min: options.withdrawalMin ?? 100_000n })
  const lock = new WorkerLock({ url, retryMs: lockRetryMs })
  const worker = new Worker({
    ...shared,
    lock,
    relayer,
    withdrawals,
    scanner: new Scanner({ ...shared, recheckMs: options.recheckMs ?? 60_000, noteHeadMs: chainAgeMsMax / 20 }),
    reconciler: new Reconciler({ ...shared, reconcileMs: options.reconcileMs ?? 5_000 }),
    foreignBatches: new ForeignBatches(shared),
    batches: new Batches({ ...shared, relayer, batchMs }),
    pollMs: options.pollMs ?? 1_000,
  })
  const settleOptions: SettleOptions = {
    database,
    chainAgeMsMax,
    onStored: wakeForBatch(worker, batchMs),
  }
  const settler = new Settler(settleOptions)
  const receipts = new BatchReceipts(database)
  const access = new Access(options)
  const routesOptions = { ...shared, relayer: relayer.address, settler, settleOptions, withdrawals, receipts, access }
  const server = await startJsonServer({
    host: options.host,
    port: options.port,
    routes: gatewayRoutes({ ...routesOptions, wake: () => worker.wake() }),
    answerError: (error) => answerFailure(error, onError),
  })
  await lock.start()
  worker.start()
  return {
    url: `http://${options.host}:${server.port}`,
    port: server.port,
    stop: () => stop({ server, settler, worker, lock, database }),
  }
}

/** Sends a gateway's alarms and errors to a log. */
export function logTo(log: Log): Pick<GatewayOptions, 'onAlarm' | 'onError'> {
  return {
    onAlarm: ({ code, message }) => log.error({ code }, message),
    onError: (error) => log.error({ err: error }, 'the gateway failed to process a request'),
  }
}

/** Wakes the worker when a batch is full or due, without waiting for the next poll of the chain. */
function wakeForBatch(worker: Worker, batchMs: number): (count: number) => void {
  let stored = 0
  let timer: NodeJS.Timeout | undefined
  const wake = () => {
    clearTimeout(timer)
    timer = undefined
    stored = 0
    worker.wake()
  }
  return (count) => {
    stored += count
    if (stored >= batchRowsMax) wake()
    else if (stored > 0) timer ??= setTimeout(wake, batchMs).unref()
  }
}

type Parts = {
  readonly server: JsonServer
  readonly settler: Settler
  readonly worker: Worker
  readonly lock: WorkerLock
  readonly database: Database
}

/** In reverse order of the start: no payment may be accepted that can no longer be stored. */
async function stop({ server, settler, worker, lock, database }: Parts): Promise<void> {
  await server.close()
  await settler.stop()
  await worker.stop()
  await lock.stop()
  await database.close()
}
