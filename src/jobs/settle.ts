import { setTimeout as sleep } from 'node:timers/promises'
import { runAsChild } from '../child.ts'
import type { LogLevel } from '../config.ts'
import { type Database, openDatabase } from '../db/database.ts'
import { type Exclusive, tryExclusive } from '../db/exclusive.ts'
import { armSettlementFailpoint } from '../failpoints.ts'
import { tellDeposits } from '../ledger/ledger-numbers.ts'
import { createLog, type Log } from '../log.ts'
import { paymentTerms } from '../settlement/authorization.ts'
import { type Chain, chainOptions, openChain } from '../settlement/chain.ts'
import { confirmPayments } from '../settlement/confirm.ts'
import {
  assignAddresses,
  reconcileArrivals,
  reconcileDeposits,
  sweepDeposits,
  watchDeposits,
} from '../settlement/deposits.ts'
import { beginEpoch } from '../settlement/epoch.ts'
import { issueReceipts } from '../settlement/issue-receipts.ts'
import { advancePayouts } from '../settlement/payout.ts'
import { createRail } from '../settlement/rail.ts'
import { refillGas } from '../settlement/refill-gas.ts'
import { submitPayments } from '../settlement/submit.ts'
import { watchSolvency } from '../settlement/watch-solvency.ts'
import { advanceWithdrawals } from '../settlement/withdraw.ts'
import { watchWithdrawalFee } from '../settlement/withdrawal-fee.ts'
import type { Address, Hex } from '../signer/address.ts'
import { openSigner } from '../signer/signer.ts'
import { type SigningTerms, usdcDomain } from '../signer/signing-terms.ts'
import { every } from './every.ts'

/** What the service asks of its settlement process. Amounts are decimal text: they come over a channel of JSON. */
export type SettleSettings = {
  readonly dataDir: string
  readonly logLevel: LogLevel
  readonly databaseUrl: string
  readonly rpcUrl: string
  readonly gatewayUrl: string
  readonly gatewayToken: string | undefined
  readonly publicUrl: string
  readonly terms: SigningTerms
  readonly epoch: number
  readonly relayer: { readonly address: Address; readonly key: Hex }
  readonly sweepMin: string
  readonly withdrawalFeeMax: string
  /** Below this the relayer's gas is an alarm; atomic USDC. */
  readonly gasMin: string
  readonly failpoint: { readonly name: string; readonly reach: number } | undefined
}

export type SettleReady = { readonly pid: number }

const depositsMs = 400
const paymentsMs = 300
const withdrawalsMs = 400
const reconcileMs = 60_000
const gasMs = 30_000
const feeMs = 60_000
const totalsMs = 5 * 60_000
const solvencyMs = 10_000
const retryLockMs = 500
const retryEpochMs = 10_000
/** A payment is looked after when the gateway had the time to batch it. */
const confirmAfterMs = 1_500
const recheckMs = 3_000

runAsChild({ title: 'penny-settle', isInBackground: true, start })

/** Ready as soon as it can be: its turn may come in days, when the process of another node ends. */
async function start(settings: SettleSettings): Promise<SettleReady> {
  const log = createLog(settings.logLevel, settings.dataDir)
  work(settings, log).catch((error: unknown) => {
    console.error(error)
    process.exit(1)
  })
  return { pid: process.pid }
}

async function work(settings: SettleSettings, log: Log): Promise<void> {
  const database = openDatabase({ url: settings.databaseUrl, poolMax: 6, applicationName: 'penny-settle' })
  const alone = await waitForTurn(settings, database, log)
  // Whoever has lost the lock may no longer be alone: the next process begins where the rows say.
  void alone.lost.then(() => process.exit(1))
  const chain = await untilAnswered(() => openChain(chainOptions(settings)), log)
  settle(settings, database, chain, log)
}

/** Alone, and in an epoch in which the ledger can be. Until it can, another node may end in its own what is open. */
async function waitForTurn({ databaseUrl, epoch }: SettleSettings, database: Database, log: Log): Promise<Exclusive> {
  for (;;) {
    const alone = await waitForLock(databaseUrl, log)
    try {
      await beginEpoch(database, epoch)
      return alone
    } catch (error) {
      log.error({ err: error }, 'nothing is settled here')
      await alone.release()
      await sleep(retryEpochMs)
    }
  }
}

/** One settlement process works at a time, over all nodes: it alone uses the relayer's nonces. */
async function waitForLock(url: string, log: Log): Promise<Exclusive> {
  for (;;) {
    const alone = await tryExclusive(url, 'settlement').catch((error: unknown) => {
      log.warn({ err: error }, 'the settlement lock could not be asked for')
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

function settle(settings: SettleSettings, database: Database, chain: Chain, log: Log): void {
  const { terms, relayer } = settings
  const onAlarm = (what: string, details: object) => log.error(details, what)
  const parts = {
    database,
    chain,
    onAlarm,
    relayer,
    signer: openSigner({
      dataDir: settings.dataDir,
      onFault: (error) => log.error({ err: error }, 'the signer is not to be trusted: nothing more is signed'),
    }),
    rail: createRail({ url: settings.gatewayUrl, token: settings.gatewayToken, domain: terms.gatewayDomain }),
    terms: paymentTerms(terms, settings.epoch),
    signingTerms: terms,
    usdcDomain: usdcDomain(terms),
    resource: {
      url: `${settings.publicUrl}/v1/chat/completions`,
      description: 'Chat completion',
      mimeType: 'application/json',
    },
    sweepMin: BigInt(settings.sweepMin),
    feeMax: BigInt(settings.withdrawalFeeMax),
    failpoint: armSettlementFailpoint(settings.failpoint),
  }
  const tell = (what: string) => (error: unknown) => log.error({ err: error }, what)

  every(depositsMs, () => bringIn(parts), tell('deposits could not be looked after'))
  every(paymentsMs, () => payOn(parts), tell('payments could not be settled'))
  every(withdrawalsMs, () => advanceWithdrawals(parts), tell('withdrawals could not be looked after'))
  every(withdrawalsMs, () => advancePayouts(parts), tell('payouts could not be looked after'))
  every(reconcileMs, () => reconcileArrivals(parts), tell('deposit addresses could not be reconciled'))
  every(reconcileMs, () => reconcileDeposits(parts), tell('deposits could not be reconciled'))
  every(
    solvencyMs,
    () => watchSolvency({ ...parts, seller: terms.seller, recheckMs }),
    tell('the books could not be compared with the chain'),
  )
  const fee = every(feeMs, () => watchWithdrawalFee(parts), tell('the gateway did not say what a withdrawal costs'))
  void fee.now()
  const gas = every(
    gasMs,
    () => refillGas(parts, BigInt(settings.gasMin)),
    tell('the gas of the relayer could not be read'),
  )
  void gas.now()
  const totals = every(totalsMs, () => tellDeposits(database), tell('deposits could not be counted'))
  void totals.now()
}

type DepositParts = Parameters<typeof watchDeposits>[0]
type PaymentParts = Parameters<typeof submitPayments>[0] & Parameters<typeof confirmPayments>[0]

async function bringIn(parts: DepositParts): Promise<void> {
  await assignAddresses(parts)
  await watchDeposits(parts)
  // What was just sent is in a block at once on a chain that is final with its first: no need to wait for the next round.
  if ((await sweepDeposits(parts)) > 0) await watchDeposits(parts)
}

async function payOn(parts: PaymentParts): Promise<void> {
  while ((await issueReceipts(parts.database, parts.terms)) > 0);
  await submitPayments(parts)
  await confirmPayments(parts, confirmAfterMs)
}
