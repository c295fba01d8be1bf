import { setTimeout as sleep } from 'node:timers/promises'
import { privateKeyToAccount } from 'viem/accounts'
import { TransactionSender } from '../chain/lands-once.ts'
import { ChainNode } from '../chain/node.ts'
import { announcerUrlOf } from '../chain/nodes.ts'
import type { LogLevel } from '../config/config.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { type Exclusive, tryExclusive } from '../db/exclusive.ts'
import { beginEpoch } from '../ledger/epoch.ts'
import { storeDueRules, writeDepositMetrics, writeNodeHealth, writePaymentMetrics } from '../ledger/ledger-numbers.ts'
import { type DueRules, makeDuePayments } from '../ledger/payments.ts'
import { isDepositAwaited } from '../ledger/watched-accounts.ts'
import { fromAtomic } from '../money/usdc.ts'
import { runAsChild } from '../process/child.ts'
import { armSettlementFailpoint, type SettlementFailpoint } from '../process/failpoints.ts'
import { createLog, type Log } from '../process/log.ts'
import type { Hex } from '../receipts/hex.ts'
import { paymentTerms } from '../settlement/authorization.ts'
import { type Chain, chainOptions, type DepositLogs, openChain } from '../settlement/chain.ts'
import { confirmPayments } from '../settlement/confirm.ts'
import { resolveUndecided } from '../settlement/confirm-x402.ts'
import {
  assignAddresses,
  reconcileArrivals,
  reconcileDeposits,
  sweepDeposits,
  watchDeposits,
} from '../settlement/deposits.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { takeDueSnapshot } from '../settlement/liabilities.ts'
import { publishTerms } from '../settlement/published-terms.ts'
import { refillGas } from '../settlement/refill-gas.ts'
import { watchSolvency } from '../settlement/solvency.ts'
import { rootRecovered, submitPayments } from '../settlement/submit.ts'
import { advanceTransfers } from '../settlement/transfers/machine.ts'
import { watchWithdrawalFee } from '../settlement/withdrawal-fee.ts'
import type { Address } from '../signer/address.ts'
import { openSigner } from '../signer/signer.ts'
import { type SigningTerms, usdcDomain } from '../signer/signing-terms.ts'
import { every, everyAtPace } from './every.ts'

/** Settings of the settlement process. Amounts are decimal text, because the channel carries JSON. */
export type SettleSettings = {
  readonly dataDir: string
  readonly logLevel: LogLevel
  readonly databaseUrl: string
  readonly rpcUrl: string
  readonly depositLogs: DepositLogs | undefined
  readonly gatewayUrl: string
  readonly gatewayToken: string | undefined
  readonly publicUrl: string
  readonly terms: SigningTerms
  readonly issuer: Address
  readonly epoch: number
  readonly relayer: { readonly address: Address; readonly key: Hex }
  /** When payments are due; see `DueRules`. */
  readonly due: Readonly<Record<'min' | 'cap' | 'max', string> & Record<'afterMs' | 'latestMs', number>>
  readonly sweepMin: string
  readonly minesOnDemand: boolean
  readonly withdrawalFeeMax: string
  /** The relayer's gas balance below which an alarm is raised; atomic USDC. */
  readonly gasMin: string
  readonly failpoint: { readonly name: string; readonly reach: number } | undefined
}

export type SettleReady = { readonly pid: number }

/** Deposits and withdrawals. A request wakes them; polled often while one is in progress, so that customers do not wait for the next poll. */
const customersPace = { busyMs: 400, idleTurns: 3, busyTurns: 12 }
/** While no deposit is awaited, the chain's logs are read once in two seconds, which Arc's public nodes sustain. */
const depositsPace = { ...customersPace, idleTurns: 5 }
/**
 * Accounts that become due within a round are paid together, which saves statements, requests and signer round trips per account.
 */
const paymentsMsMin = 300
const paymentsMsMax = 1_000
/** For payouts that operators request, and gas refills. */
const payoutsMs = 2_000
/** Payments without a known outcome are rare: the request that submitted a payment knows its outcome, unless it died. */
const undecidedMs = 5_000
const reconcileMs = 60_000
const gasMs = 30_000
const nodesMs = 15_000
const feeMs = 60_000
const totalsMs = 5 * 60_000
const solvencyMs = 10_000
/** How soon a snapshot of the liabilities is taken when it is due. */
const snapshotMs = 5_000
const retryLockMs = 500
const retryEpochMs = 10_000
/** A payment is checked after the gateway had time to batch it. */
const confirmAfterMs = 1_500
const recheckMs = 3_000
/** Verifies one in this many payment signatures here. The gateway verifies each. */
const checkEvery = 32

runAsChild({ title: 'penny-settle', isInBackground: true, start })

/** Reports ready immediately: it may take days until the process of another node ends and this one gets the lock. */
async function start(settings: SettleSettings): Promise<SettleReady> {
  const log = createLog(settings.logLevel)
  work(settings, log).catch((error: unknown) => {
    console.error(error)
    process.exit(1)
  })
  return { pid: process.pid }
}

async function work(settings: SettleSettings, log: Log): Promise<void> {
  const database = openDatabase({ url: settings.databaseUrl, poolMax: 6, applicationName: 'penny-settle' })
  let wake = () => {}
  const alone = await waitForTurn(settings, database, log, () => wake())
  // Without the lock another process may already be settling. Exit; the next process continues from the rows.
  void alone.lost.then(() => process.exit(1))
  const { chainId } = settings.terms
  const node = new ChainNode(settings.rpcUrl, { chainId })
  const announcer = announcerUrlOf(settings.rpcUrl)
  if (announcer !== undefined) node.listen(announcer, chainId)
  const chain = await untilAnswered(() => openChain({ ...chainOptions(settings), node }), log)
  wake = settle(settings, database, { chain, node }, log)
}

/**
 * Waits for the lock, and for an epoch that fits the ledger. Until then another node, in its own epoch, may finish what is open.
 */
async function waitForTurn(
  { databaseUrl, epoch, terms, issuer }: SettleSettings,
  database: Database,
  log: Log,
  onWoken: () => void,
): Promise<Exclusive> {
  for (;;) {
    const alone = await waitForLock(databaseUrl, log, onWoken)
    try {
      await beginEpoch(database, epoch)
      await publishTerms(database, { terms, issuer })
      return alone
    } catch (error) {
      log.error({ err: error }, 'settlement could not start on this machine')
      await alone.release()
      await sleep(retryEpochMs)
    }
  }
}

/** Only one settlement process works at a time, over all nodes: it alone uses the relayer's nonces. */
async function waitForLock(url: string, log: Log, onWoken: () => void): Promise<Exclusive> {
  for (;;) {
    const alone = await tryExclusive(url, 'settlement', { onWoken }).catch((error: unknown) => {
      log.warn({ err: error }, 'the settlement lock could not be requested')
      return undefined
    })
    if (alone !== undefined) return alone
    await sleep(retryLockMs)
  }
}

async function untilAnswered(open: () => Promise<Chain>, log: Log): Promise<Chain> {
  for (;;) {
    try {
      return await open()
    } catch (error) {
      log.warn({ err: error }, 'the chain does not answer')
      await sleep(retryLockMs)
    }
  }
}

/** The chain, and the one client behind it. */
type ChainAccess = { readonly chain: Chain; readonly node: ChainNode }

/** Sends deposits into the gateway, with the relayer's key. */
function openSender(
  { relayer }: SettleSettings,
  { chain: { chainId }, node }: ChainAccess,
  onAlarm: DepositParts['onAlarm'],
  failpoint: SettlementFailpoint,
): TransactionSender {
  return new TransactionSender({
    node,
    chainId,
    account: privateKeyToAccount(relayer.key),
    onProblem: ({ code, message }) => onAlarm(message, { code }),
    onStep: (step) => {
      if (step === 'stored') failpoint('before_sweep_broadcast')
      if (step === 'sent') failpoint('after_sweep_broadcast')
    },
  })
}

/** Returns what wakes the jobs that a customer waits for. */
function settle(settings: SettleSettings, database: Database, access: ChainAccess, log: Log): () => void {
  const { terms, relayer } = settings
  const { chain, node } = access
  const onAlarm = (what: string, details: object) => log.error(details, what)
  const failpoint = armSettlementFailpoint(settings.failpoint)
  const parts = {
    database,
    chain,
    onAlarm,
    relayer,
    signer: openSigner({
      dataDir: settings.dataDir,
      checkEvery,
      onFault: (error) => log.error({ err: error }, 'the signer cannot be trusted: nothing more is signed'),
    }),
    gatewayClient: createGatewayClient({
      url: settings.gatewayUrl,
      token: settings.gatewayToken,
      domain: terms.gatewayDomain,
    }),
    terms: paymentTerms(terms, settings.epoch),
    signingTerms: terms,
    usdcDomain: usdcDomain(terms),
    resource: {
      url: `${settings.publicUrl}/v1/chat/completions`,
      description: 'Chat completion',
      mimeType: 'application/json',
    },
    due: {
      afterMs: settings.due.afterMs,
      min: fromAtomic(BigInt(settings.due.min)),
      latestMs: settings.due.latestMs,
      cap: fromAtomic(BigInt(settings.due.cap)),
      max: fromAtomic(BigInt(settings.due.max)),
    },
    sender: openSender(settings, access, onAlarm, failpoint),
    sweepMin: BigInt(settings.sweepMin),
    minesOnDemand: settings.minesOnDemand,
    feeMax: BigInt(settings.withdrawalFeeMax),
    failpoint,
  }
  const logError = (what: string) => (error: unknown) => log.error({ err: error }, what)

  const deposits = everyAtPace(depositsPace, () => processDeposits(parts), logError('deposits could not be processed'))
  every(
    paymentsMs(settings.due.afterMs),
    () => makeAndConfirmPayments(parts),
    logError('payments could not be settled'),
  )
  const withdrawals = everyAtPace(
    customersPace,
    async () => (await advanceTransfers(parts, 'withdrawal')) > 0,
    logError('withdrawals could not be processed'),
  )
  const refunds = everyAtPace(
    customersPace,
    async () => (await advanceTransfers(parts, 'refund')) > 0,
    logError('refunds could not be processed'),
  )
  every(undecidedMs, () => resolveUndecided(parts), logError('payments of wallets could not be looked up'))
  every(payoutsMs, () => advanceTransfers(parts, 'payout'), logError('payouts could not be processed'))
  every(reconcileMs, () => reconcileArrivals(parts), logError('deposit addresses could not be reconciled'))
  every(reconcileMs, () => reconcileDeposits(parts), logError('deposits could not be reconciled'))
  every(
    solvencyMs,
    () => watchSolvency({ ...parts, seller: terms.seller, recheckMs }),
    logError('the ledger could not be compared with the chain'),
  )
  every(
    snapshotMs,
    () => takeDueSnapshot({ ...parts, issuer: settings.issuer }),
    logError('the snapshot of the liabilities could not be taken'),
  )
  const fee = every(
    feeMs,
    () => watchWithdrawalFee(parts),
    logError('the withdrawal fee could not be read from the gateway'),
  )
  void fee.now()
  const gas = every(
    gasMs,
    () => refillGas(parts, BigInt(settings.gasMin)),
    logError('the gas balance of the relayer could not be read'),
  )
  void gas.now()
  every(
    nodesMs,
    () => writeNodeHealth(database, node.health()),
    logError('the state of the chain nodes could not be stored'),
  )
  const totals = every(totalsMs, () => writeTotals(parts), logError('deposits and payments could not be counted'))
  void totals.now()
  return () => {
    for (const job of [deposits, withdrawals, refunds]) job.wake()
  }
}

/** A fifth of the time that charges may wait, so that rounds add little to it. */
function paymentsMs(afterMs: number): number {
  return Math.min(Math.max(afterMs / 5, paymentsMsMin), paymentsMsMax)
}

type DepositParts = Parameters<typeof watchDeposits>[0]
type PaymentParts = Parameters<typeof submitPayments>[0] &
  Parameters<typeof confirmPayments>[0] & { readonly due: DueRules }

/** Returns whether a deposit is in progress or awaited, or an account has just received its deposit address. */
async function processDeposits(parts: DepositParts): Promise<boolean> {
  let assigned = 0
  // Assign all addresses before reading on from the chain: after a restore there may be many.
  for (let count = -1; count !== 0; assigned += count) count = await assignAddresses(parts)
  await watchDeposits(parts)
  const sweeps = await sweepDeposits(parts)
  // On a chain with immediate finality, the sweep that was just sent is already in a block: no need to wait for the next round.
  if (sweeps > 0) await watchDeposits(parts)
  return assigned > 0 || sweeps > 0 || (await isDepositAwaited(parts.database))
}

async function writeTotals({ database, gatewayClient, due }: PaymentParts): Promise<void> {
  await storeDueRules(database, due)
  await writeDepositMetrics(database)
  // A gateway that does not answer now reports its gas in the next round.
  await writePaymentMetrics(database, await gatewayClient.batchGas().catch(() => undefined))
}

async function makeAndConfirmPayments(parts: PaymentParts): Promise<void> {
  await rootRecovered(parts)
  await makeDuePayments(parts.database, parts.due, parts.terms.epoch)
  parts.failpoint('after_payment_made')
  await submitPayments(parts)
  await confirmPayments(parts, confirmAfterMs)
}
