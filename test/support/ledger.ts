import { randomBytes, randomUUID } from 'node:crypto'
import type { Database } from '../../src/db/database.ts'
import { createKey, type NewApiKey } from '../../src/identity/api-keys.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { creditDeposit } from '../../src/ledger/deposits.ts'
import type { EndCall, Hold, HoldCall, HoldDecision, Payer, ToolCallRecord } from '../../src/ledger/hold-calls.ts'
import { Holds } from '../../src/ledger/holds.ts'
import { renewLease } from '../../src/ledger/nodes.ts'
import { advancePayments } from '../../src/ledger/payments.ts'
import { recordPrices } from '../../src/ledger/prices.ts'
import { claimReplay, closeReplay, type ReplayKey, refundAttempt } from '../../src/ledger/replays.ts'
import { createRequestId, type RequestId } from '../../src/ledger/request-id.ts'
import type { PaymentState } from '../../src/ledger/states.ts'
import { fromAtomic, parse, type Usdc, zero } from '../../src/money/usdc.ts'

export const testModel = { id: 'm', inputPerMillion: 1_000_000n, outputPerMillion: 1_000_000n }

/** The whole ledger suite also runs with several: see test/run.ts. */
export const partitions = Number(process.env.LEDGER_PARTITIONS ?? 1)

export type LedgerOptions = {
  readonly cap?: string
  readonly node?: string
  readonly waitMsMax?: number
  readonly renewLease?: () => Promise<unknown>
  /** Default: fails the test. */
  readonly onLost?: (error: unknown) => void
}

/** A ledger without the service around it: prices of one unit per token, so that charges can be written as token counts. */
export async function openLedger(database: Database, options: LedgerOptions = {}): Promise<Holds> {
  await recordPrices(database, 'test', [testModel], searchPrice)
  const { node = randomUUID() } = options
  await renewLease(database, node, 3_600_000)
  return new Holds({
    database,
    node,
    priceVersion: 'test',
    inFlightCap: parse(options.cap ?? '1000'),
    waitMsMax: options.waitMsMax ?? 60_000,
    // Tests end leases of nodes that live.
    leaseReadMs: 0,
    ...(options.renewLease && { renewLease: options.renewLease }),
    spansPartitions: process.env.TEST_CITUS_WORKERS === undefined,
    onLost:
      options.onLost ??
      ((error) => {
        throw error
      }),
  })
}

export async function openPayer(database: Database, atomic: bigint, key: Partial<NewApiKey> = {}): Promise<Payer> {
  const account = await createAccount(database, 'test', partitions)
  const deposit = {
    partition: account.partition,
    id: randomUUID(),
    accountId: account.id,
    amount: fromAtomic(atomic),
    source: 'test',
  }
  if (atomic > 0n) await creditDeposit(database, deposit)
  return { partition: account.partition, accountId: account.id, keyId: await openKey(database, account, key) }
}

export async function openKey(
  database: Database,
  account: { readonly partition: number; readonly id: string },
  key: Partial<NewApiKey> = {},
): Promise<string> {
  const { id } = await createKey(database, {
    partition: account.partition,
    accountId: account.id,
    name: 'test',
    ...key,
  })
  return id
}

export function holdCall(
  payer: Payer,
  quote: bigint,
  requestId = createRequestId(payer.partition, Date.now()),
): HoldCall {
  return { requestId, payer, quote: fromAtomic(quote), model: testModel.id, stream: false, maxTokens: 100 }
}

/** A hold of its own, unlike the same call again. */
export function place(holds: Holds, payer: Payer, quote: bigint, requestId?: RequestId): Promise<HoldDecision> {
  return holds.place(holdCall(payer, quote, requestId))
}

/** Places a hold that must succeed. */
export async function hold(holds: Holds, payer: Payer, quote: bigint): Promise<Hold> {
  const decision = await place(holds, payer, quote)
  if ('refusal' in decision) throw new Error(`refused: ${decision.refusal.code}`)
  return decision.hold
}

export function charge(placed: Hold, charged: bigint, changes: Partial<EndCall> = {}): EndCall {
  return {
    requestId: placed.requestId,
    payer: placed.payer,
    status: 'succeeded',
    voided: false,
    charged: fromAtomic(charged),
    searchCost: zero,
    searchCalls: 0,
    fetchCalls: 0,
    usage: {
      promptTokens: Number(charged),
      completionTokens: 0,
      reasoningTokens: 0,
      cachedTokens: 0,
      source: 'upstream',
    },
    finishReason: 'stop',
    errorCode: undefined,
    firstTokenMs: 1,
    totalMs: 2,
    ...changes,
  }
}

export const searchPrice = 8_750n

/** Extends a hold by a search, runs it, and charges it alone. */
export async function search(holds: Holds, placed: Hold): Promise<void> {
  const { requestId, payer } = placed
  const decision = await holds.extend({ requestId, payer, total: fromAtomic(searchPrice) })
  if (decision !== 'extended') throw new Error(`refused: ${decision}`)
  holds.recordToolCall(searched(placed, 1))
  await holds.end(charge(placed, searchPrice, { searchCost: fromAtomic(searchPrice), searchCalls: 1 }))
}

export function searched({ requestId, payer }: Hold, number: number): ToolCallRecord {
  const { partition } = payer
  return {
    requestId,
    partition,
    number,
    kind: 'search',
    status: 'completed',
    cost: fromAtomic(searchPrice),
    results: 5,
  }
}

export function voided(placed: Hold): EndCall {
  return charge(placed, 0n, {
    status: 'failed',
    voided: true,
    usage: undefined,
    finishReason: undefined,
    errorCode: 'upstream_error',
  })
}

export function newReplayKey(payer: Payer): ReplayKey {
  return { payer, keyHash: randomBytes(32), bodyHash: randomBytes(32), attemptHash: undefined }
}

/** Serves an ended attempt again under its Idempotency-Key, and refunds what the ledger allows. Undefined when the retry is refused. */
export async function serveAgain(
  database: Database,
  holds: Holds,
  payer: Payer,
  [earlier, charged]: readonly [earlier: RequestId, charged: bigint],
): Promise<Usdc | undefined> {
  const key = newReplayKey(payer)
  await claimReplay(database, key, { requestId: earlier, node: holds.node })
  await closeReplay(database, key, earlier, undefined)
  const retry = await place(holds, payer, charged)
  if ('refusal' in retry) return undefined
  await claimReplay(database, key, { requestId: retry.hold.requestId, node: holds.node })
  await holds.end(charge(retry.hold, charged))
  const refunded = await refundAttempt(database, key, retry.hold.requestId)
  await refundAttempt(database, key, retry.hold.requestId)
  await closeReplay(database, key, retry.hold.requestId, 'the answer')
  return refunded
}

export const cancelledByClient = { status: 'cancelled', finishReason: undefined } as const

export function codeOf(decision: HoldDecision): string {
  return 'refusal' in decision ? decision.refusal.code : 'held'
}

export function sum(amounts: readonly Usdc[]): bigint {
  return amounts.reduce<bigint>((total, amount) => total + amount, 0n)
}

/** Pays everything that these accounts were charged, or tries to: all of their payments come to this state. */
export async function settle(database: Database, payers: readonly Payer[], state: PaymentState): Promise<void> {
  for (const { partition, accountId } of payers) {
    await database.query('select make_payments($1, array[$2::uuid], $3, 4096, 1000000000, 0)', [
      partition,
      accountId,
      '{}',
    ])
    const open = await database.query<{ number: bigint }>(
      `select number from payments where partition = $1 and account_id = $2 and state = 'submitted'`,
      [partition, accountId],
    )
    await advancePayments(
      database,
      open.map(({ number }) => ({ payment: { partition, accountId, number }, state })),
    )
  }
}
