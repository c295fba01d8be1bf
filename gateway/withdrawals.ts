import { randomUUID } from 'node:crypto'
import { type Address, decodeErrorResult, encodeFunctionData, type Hash, type Hex } from 'viem'
import { settlementGatewayAbi } from '../contracts/generated/SettlementGateway.abi.ts'
import { CallRevertsError, type ChainNode } from '../src/chain/node.ts'
import type { Connection, Database } from '../src/db/database.ts'
import type { OnAlarm } from './alarm.ts'
import { IntentRefusedError, type SignedBurnIntent } from './burn-intent.ts'
import { viewIsOrderPaid } from './chain/contract-views.ts'
import type { Relayer } from './chain/relayer.ts'
import type { GatewayTerms } from './terms.ts'

export type WithdrawalsOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly relayer: Relayer
  /** Atomic USDC. A depositor may withdraw less than this once in 12 hours: each withdrawal costs gas. */
  readonly min: bigint
  readonly clock: () => number
  readonly onAlarm: OnAlarm
}

export type WithdrawalStatus = 'pending' | 'confirmed' | 'finalized' | 'failed' | 'expired'

export type Withdrawal = {
  readonly status: WithdrawalStatus
  readonly transactionHash: Hash | null
  readonly failure: string | null
  readonly intents: readonly {
    readonly specHash: Hash
    readonly maxBlockHeight: string
    readonly transactionHash: Hash | null
  }[]
}

const amountMax = 2n ** 63n - 1n
/** Permanent: a retry cannot succeed. */
const lastingReasons: readonly string[] = ['IntentExceedsBalance', 'IntentRecipientInvalid']
/** They affect all money movements, not only this intent: batches wait too. */
const commonReasons: readonly string[] = ['EnforcedPause', 'OnlyRelayer']
/** An intent that is refused for the same reason this often and for this long has failed. */
const refusalsMax = 10
const refusedMsMax = 600_000
const retryMsMin = 5_000
const retryMsMax = 60_000
/** An intent whose transaction reverted in this many blocks has failed: the estimates that let it pass cannot be trusted. */
const revertsMax = 10
/** Shorter than the service's 24 hours: an intent that reached us late must not delay the next one. */
const smallHours = 12
/** An intent that is valid for fewer blocks could expire before its turn, for free: expired ones are served first. */
const validBlocksMin = 5_000n
const reasonLengthMax = 200
const revertedReason = 'reverted in its block'

/** Accepts instant withdrawals and executes them. */
export class Withdrawals {
  readonly #options: WithdrawalsOptions

  constructor(options: WithdrawalsOptions) {
    this.#options = options
  }

  /**
   * Reserves the money and stores the intents, all of a request or none, before answering. The same intents again get the same id.
   */
  async accept(intents: readonly SignedBurnIntent[], height: bigint): Promise<string> {
    const { database } = this.#options
    for (const { intent } of intents) {
      if (intent.maxBlockHeight <= height) throw new IntentRefusedError('maxBlockHeight has passed')
      if (intent.spec.value > amountMax) throw new IntentRefusedError('insufficient balance')
    }
    if (new Set(intents.map(({ specHash }) => specHash)).size !== intents.length) {
      throw new IntentRefusedError('two burn intents of the request are the same')
    }
    return database.transaction((connection) => storeIntents(connection, intents, { ...this.#options, height }))
  }

  /** Sends the next intent: depositors are served in turn, not by age. */
  async sendNext(head: bigint): Promise<boolean> {
    const { database, relayer, clock } = this.#options
    const [next] = await database.queryPrepared<{ specHash: Hash; data: Hex; isExpired: boolean; reverts: number }>(
      'find_next_withdrawal',
      `select spec_hash as "specHash", data, max_block_height < $1 as "isExpired", reverts from burn_intents
        where state = 'pending' and (retry_at <= $2 or max_block_height < $1)
        order by max_block_height < $1 desc, turn, created_at, position limit 1`,
      [head, new Date(clock())],
    )
    if (next === undefined) return false
    if (next.isExpired) {
      await this.#end(next.specHash, 'expired', 'maxBlockHeight has passed')
      return true
    }
    if (next.reverts >= revertsMax) {
      await this.#giveUp(next.specHash, head)
      return true
    }
    try {
      const call = await relayer.sign(next.data)
      await database.transaction(async (connection) => {
        const id = await relayer.store(connection, 'withdrawal', call)
        await takeOrder(connection, next.specHash, id)
      })
      await relayer.send(call)
    } catch (error) {
      if (!(error instanceof CallRevertsError)) throw error
      await this.#refuse(next.specHash, reasonOf(error.data), head)
    }
    return true
  }

  /** The call is in a block but the contract did not pay: its intent waits again, each time longer. */
  async takeBack(connection: Connection, call: bigint): Promise<void> {
    await connection.query(
      `update burn_intents set state = 'pending', call = null, failure = $3, reverts = reverts + 1,
              retry_at = $2::timestamptz + least($4 * 2 ^ reverts, $5) * interval '1 millisecond'
        where call = $1 and state in ('sent', 'confirmed')`,
      [call, new Date(this.#options.clock()), revertedReason, retryMsMin, retryMsMax],
    )
  }

  /** The contract would refuse the intent: permanent reasons end it, temporary ones delay it. */
  async #refuse(specHash: Hash, reason: string, head: bigint): Promise<void> {
    const { node, terms, onAlarm } = this.#options
    if (reason === 'IntentExpired') return this.#end(specHash, 'expired', reason)
    if (lastingReasons.includes(reason)) return this.#end(specHash, 'failed', reason)
    if (reason === 'IntentUsed') {
      // All events up to the head are in the database. If it was paid above the head, its event is still to come.
      const isPaid = await viewIsOrderPaid(node, terms, specHash, head)
      return isPaid ? this.#end(specHash, 'finalized', null) : this.#wait(specHash, reason)
    }
    if (commonReasons.includes(reason)) {
      onAlarm({ code: 'settlement_refused', message: `The contract refuses withdrawals (${reason}): they wait.` })
      return this.#wait(specHash, reason)
    }
    await this.#doubt(specHash, reason)
  }

  async #wait(specHash: Hash, reason: string): Promise<void> {
    await this.#options.database.query(
      `update burn_intents set failure = $2, refusals = 0, refused_since = null, retry_at = $3
        where spec_hash = $1 and state = 'pending'`,
      [specHash, reason, new Date(this.#options.clock() + retryMsMin)],
    )
  }

  /**
   * A recipient that the token has blocked may be unblocked in a minute, or never. Giving up is safe: only relayers of this
   * operator can submit the intent, and they submit none that has failed.
   */
  async #doubt(specHash: Hash, reason: string): Promise<void> {
    const { database, clock, onAlarm } = this.#options
    const now = clock()
    const [row] = await database.query<{ refusals: number; since: Date }>(
      `update burn_intents set failure = $2,
              refusals = case when failure = $2 then refusals else 0 end + 1,
              refused_since = case when failure = $2 then coalesce(refused_since, $3) else $3 end
        where spec_hash = $1 and state = 'pending' returning refusals, refused_since as since`,
      [specHash, reason, new Date(now)],
    )
    if (row === undefined) return
    const isGivenUp = row.refusals >= refusalsMax && now - row.since.getTime() >= refusedMsMax
    const fate = isGivenUp ? 'it has failed, and its amount is released' : 'it is tried again'
    onAlarm({
      code: 'withdrawal_refused',
      message: `The contract would not pay withdrawal ${specHash} (${reason}): ${fate}.`,
    })
    if (isGivenUp) return this.#end(specHash, 'failed', reason)
    const retryMs = Math.min(retryMsMin * 2 ** (row.refusals - 1), retryMsMax)
    await database.query('update burn_intents set retry_at = $2 where spec_hash = $1', [
      specHash,
      new Date(now + retryMs),
    ])
  }

  /**
   * A node that invents receipts may have reported reverts that never happened: an intent that the contract has paid must not fail.
   */
  async #giveUp(specHash: Hash, head: bigint): Promise<void> {
    const { node, terms, onAlarm } = this.#options
    if (await viewIsOrderPaid(node, terms, specHash, head)) return this.#end(specHash, 'finalized', null)
    onAlarm({
      code: 'withdrawal_refused',
      message: `Withdrawal ${specHash} reverted in ${revertsMax} blocks: it has failed, and its amount is released.`,
    })
    await this.#end(specHash, 'failed', revertedReason)
  }

  async #end(specHash: Hash, state: 'finalized' | 'failed' | 'expired', failure: string | null): Promise<void> {
    await this.#options.database.transaction(async (connection) => {
      const [ended] = await connection.query<{ depositor: Address; value: bigint }>(
        `update burn_intents set state = $2, failure = $3 where spec_hash = $1 and state = 'pending' returning depositor, value`,
        [specHash, state, failure],
      )
      if (ended === undefined) return
      await connection.query('update balances set pending = pending - $2 where depositor = $1', [
        ended.depositor,
        ended.value,
      ])
    })
  }
}

export async function findWithdrawal(database: Database, id: string): Promise<Withdrawal | undefined> {
  const rows = await database.query<{
    specHash: Hash
    maxBlockHeight: string
    state: WithdrawalStatus | 'sent'
    failure: string | null
    transactionHash: Hash | null
  }>(
    `select spec_hash as "specHash", max_block_height::text as "maxBlockHeight", burn_intents.state, failure,
            coalesce((select transaction_hash from events where events.spec_hash = burn_intents.spec_hash limit 1), calls.hash,
                     (select hash from transactions where transactions.call = calls.id order by created_at desc limit 1))
              as "transactionHash"
       from burn_intents left join calls on calls.id = call where withdrawal = $1 order by position`,
    [id],
  )
  if (rows.length === 0) return undefined
  return {
    status: statusOf(rows.map(({ state }) => state)),
    transactionHash: rows[0]!.transactionHash,
    failure: rows.find(({ failure }) => failure !== null)?.failure ?? null,
    intents: rows.map(({ specHash, maxBlockHeight, transactionHash }) => ({
      specHash,
      maxBlockHeight,
      transactionHash,
    })),
  }
}

/** Its transaction is in a block that is not final yet. */
export async function confirmBurnIntent(connection: Connection, call: bigint): Promise<void> {
  await connection.query(`update burn_intents set state = 'confirmed' where call = $1 and state = 'sent'`, [call])
}

/** The call never took effect: its intent waits again. */
export async function releaseBurnIntent(connection: Connection, call: bigint): Promise<void> {
  await connection.query(
    `update burn_intents set state = 'pending', call = null where call = $1 and state in ('sent', 'confirmed')`,
    [call],
  )
}

/** The status of several intents is that of the one furthest behind. */
function statusOf(states: readonly (WithdrawalStatus | 'sent')[]): WithdrawalStatus {
  const order = ['pending', 'sent', 'failed', 'expired', 'confirmed', 'finalized'] as const
  const state = order.find((candidate) => states.includes(candidate))!
  return state === 'sent' ? 'pending' : state
}

async function storeIntents(
  connection: Connection,
  intents: readonly SignedBurnIntent[],
  options: Pick<WithdrawalsOptions, 'min' | 'clock'> & { readonly height: bigint },
): Promise<string> {
  const hashes = intents.map(({ specHash }) => specHash)
  const depositors = [...new Set(intents.map(({ depositor }) => depositor))]
  const balances = await connection.query<{ depositor: Address; free: bigint }>(
    `select depositor, available - pending - doubtful as free from balances where depositor = any($1) order by depositor for update`,
    [depositors],
  )
  const known = await connection.query<{ withdrawal: string }>(
    'select withdrawal from burn_intents where spec_hash = any($1)',
    [hashes],
  )
  const [first] = known
  if (first !== undefined) {
    const isSame = known.length === hashes.length && known.every(({ withdrawal }) => withdrawal === first.withdrawal)
    if (isSame) return first.withdrawal
    throw new IntentRefusedError('some of these burn intents were used before')
  }
  const paid = await readPaid(connection, hashes)
  const free = new Map(balances.map((balance) => [balance.depositor, balance.free]))
  const withdrawal = randomUUID()
  for (const [position, signed] of intents.entries()) {
    const isPaid = paid.has(signed.specHash)
    if (!isPaid) {
      refuseShort(signed.intent, options.height)
      await refuseDust(connection, signed, options)
    }
    const state = isPaid ? 'finalized' : 'pending'
    await insertIntent(connection, signed, { withdrawal, position, state })
    if (isPaid) continue
    const left = (free.get(signed.depositor) ?? 0n) - signed.intent.spec.value
    if (left < 0n) throw new IntentRefusedError('insufficient balance')
    free.set(signed.depositor, left)
    await setAside(connection, signed)
  }
  return withdrawal
}

/** Intents that the chain has already paid: a gateway with another or a lost database accepted them. */
async function readPaid(connection: Connection, hashes: readonly Hash[]): Promise<ReadonlySet<Hash>> {
  const rows = await connection.query<{ specHash: Hash }>(
    'select spec_hash as "specHash" from events where spec_hash = any($1)',
    [hashes],
  )
  return new Set(rows.map(({ specHash }) => specHash))
}

function refuseShort({ maxBlockHeight }: SignedBurnIntent['intent'], height: bigint): void {
  const valid = maxBlockHeight - height
  if (valid >= validBlocksMin) return
  throw new IntentRefusedError(`maxBlockHeight is ${valid} blocks ahead; the minimum is ${validBlocksMin}`)
}

async function refuseDust(
  connection: Connection,
  { depositor, intent }: SignedBurnIntent,
  { min, clock }: Pick<WithdrawalsOptions, 'min' | 'clock'>,
): Promise<void> {
  if (intent.spec.value >= min) return
  const [found] = await connection.query(
    `select from burn_intents where depositor = $1 and value < $2 and state <> 'failed'
        and created_at > $3::timestamptz - ${smallHours} * interval '1 hour' limit 1`,
    [depositor, min, new Date(clock())],
  )
  if (found === undefined) return
  throw new IntentRefusedError(
    `value is ${intent.spec.value}; the minimum is ${min}, and a depositor may withdraw less once in ${smallHours} hours`,
  )
}

// After this depositor's other waiting intents, and not before the turn that is being served.
const nextTurn = `greatest((select coalesce(min(turn), 0) from burn_intents where state = 'pending'),
  (select coalesce(max(turn) + 1, 0) from burn_intents where state = 'pending' and depositor = $4))`

async function insertIntent(
  connection: Connection,
  { intent, signature, specHash, depositor, recipient }: SignedBurnIntent,
  place: { readonly withdrawal: string; readonly position: number; readonly state: 'pending' | 'finalized' },
): Promise<void> {
  const { withdrawal, position, state } = place
  const data = encodeFunctionData({
    abi: settlementGatewayAbi,
    functionName: 'instantWithdraw',
    args: [intent, signature],
  })
  await connection.query(
    `insert into burn_intents (spec_hash, withdrawal, position, depositor, recipient, value, max_block_height, data, state, turn)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, ${nextTurn})`,
    [specHash, withdrawal, position, depositor, recipient, intent.spec.value, intent.maxBlockHeight, data, state],
  )
}

async function setAside(connection: Connection, { depositor, intent }: SignedBurnIntent): Promise<void> {
  await connection.query('update balances set pending = pending + $2 where depositor = $1', [
    depositor,
    intent.spec.value,
  ])
}

/** Call it in the database transaction of its call: another gateway may have ended the intent meanwhile and released its money. */
async function takeOrder(connection: Connection, specHash: Hash, call: bigint): Promise<void> {
  const taken = await connection.query(
    `update burn_intents set state = 'sent', call = $2, failure = null, refusals = 0, refused_since = null
      where spec_hash = $1 and state = 'pending' returning spec_hash`,
    [specHash, call],
  )
  // By another gateway. Nothing was sent.
  if (taken.length === 0) throw new Error('this withdrawal is no longer pending')
}

/** The name of the contract's error; for an error of the token, its text or its number. */
function reasonOf(data: Hex): string {
  try {
    const error: { errorName: string; args?: readonly unknown[] } = decodeErrorResult({
      abi: settlementGatewayAbi,
      data,
    })
    if (error.errorName !== 'Error') return error.errorName
    return String(error.args?.[0])
      .slice(0, reasonLengthMax)
      .replaceAll(/[^ -~]/g, '?')
  } catch {
    return `reverted ${data.slice(0, 10)}`
  }
}
