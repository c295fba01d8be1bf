import { randomUUID } from 'node:crypto'
import { type Address, decodeErrorResult, encodeFunctionData, type Hash, type Hex } from 'viem'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import type { Database, Session } from '../db/database.ts'
import { IntentRefusedError, type SignedBurnIntent } from './burn-intent.ts'
import { CallRevertsError } from './chain/node.ts'
import type { Relayer } from './chain/relayer.ts'

export type WithdrawalsOptions = {
  readonly database: Database
  readonly relayer: Relayer
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

/** Takes orders to pay out at once and has them carried out. */
export class Withdrawals {
  readonly #options: WithdrawalsOptions

  constructor(options: WithdrawalsOptions) {
    this.#options = options
  }

  /**
   * Sets the money aside and stores the orders, all of a request or none, before it is answered. The same orders again are
   * answered with the same id.
   */
  async order(intents: readonly SignedBurnIntent[], height: bigint): Promise<string> {
    const { database } = this.#options
    for (const { intent } of intents) {
      if (intent.maxBlockHeight <= height) throw new IntentRefusedError('maxBlockHeight has passed')
      if (intent.spec.value > amountMax) throw new IntentRefusedError('insufficient balance')
    }
    if (new Set(intents.map(({ specHash }) => specHash)).size !== intents.length) {
      throw new IntentRefusedError('two burn intents of the request are the same')
    }
    return database.transaction((session) => storeOrders(session, intents))
  }

  /** Sends the oldest order that waits. */
  async sendNext(head: bigint): Promise<boolean> {
    const { database, relayer } = this.#options
    const [next] = await database.query<{ specHash: Hash; data: Hex; isExpired: boolean }>(
      `select spec_hash as "specHash", data, max_block_height < $1 as "isExpired" from burn_intents
        where state = 'pending' and (retry_at <= clock_timestamp() or max_block_height < $1)
        order by max_block_height < $1 desc, created_at, position limit 1`,
      [head],
    )
    if (next === undefined) return false
    if (next.isExpired) {
      await this.#end(next.specHash, 'expired', 'maxBlockHeight has passed')
      return true
    }
    try {
      const call = await relayer.sign(next.data)
      await database.transaction(async (session) => {
        const id = await relayer.store(session, 'withdrawal', call)
        await session.query(`update burn_intents set state = 'sent', call = $2 where spec_hash = $1`, [
          next.specHash,
          id,
        ])
      })
      await relayer.send(call)
    } catch (error) {
      if (!(error instanceof CallRevertsError)) throw error
      await this.#refuse(next.specHash, error)
    }
    return true
  }

  /** The contract would not take it: what will never change ends it, what may pass makes it wait. */
  async #refuse(specHash: Hash, error: CallRevertsError): Promise<void> {
    const reason = errorNameOf(error.data)
    if (reason === 'IntentExpired') await this.#end(specHash, 'expired', reason)
    else if (reason === 'IntentExceedsBalance' || reason === 'IntentRecipientInvalid') {
      await this.#end(specHash, 'failed', reason)
    } else {
      // Paused, a relayer that is none any more, a blocked recipient, or paid already and the event not seen yet.
      const wait = `update burn_intents set failure = $2, retry_at = clock_timestamp() + interval '5 s' where spec_hash = $1`
      await this.#options.database.query(wait, [specHash, reason ?? 'reverted'])
    }
  }

  async #end(specHash: Hash, state: 'failed' | 'expired', failure: string): Promise<void> {
    await this.#options.database.transaction(async (session) => {
      const [ended] = await session.query<{ depositor: Address; value: bigint }>(
        `update burn_intents set state = $2, failure = $3 where spec_hash = $1 and state = 'pending' returning depositor, value`,
        [specHash, state, failure],
      )
      if (ended === undefined) return
      await session.query('update balances set pending = pending - $2 where depositor = $1', [
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
            coalesce(calls.hash, (select hash from transactions where transactions.call = calls.id order by created_at desc limit 1))
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
export async function confirmBurnIntent(session: Session, call: bigint): Promise<void> {
  await session.query(`update burn_intents set state = 'confirmed' where call = $1 and state = 'sent'`, [call])
}

/** The call never came into effect: its order waits again. */
export async function releaseBurnIntent(session: Session, call: bigint): Promise<void> {
  await session.query(
    `update burn_intents set state = 'pending', call = null where call = $1 and state in ('sent', 'confirmed')`,
    [call],
  )
}

/** Of several orders the one that is furthest behind counts. */
function statusOf(states: readonly (WithdrawalStatus | 'sent')[]): WithdrawalStatus {
  const order = ['pending', 'sent', 'failed', 'expired', 'confirmed', 'finalized'] as const
  const state = order.find((candidate) => states.includes(candidate))!
  return state === 'sent' ? 'pending' : state
}

async function storeOrders(session: Session, intents: readonly SignedBurnIntent[]): Promise<string> {
  const hashes = intents.map(({ specHash }) => specHash)
  const depositors = [...new Set(intents.map(({ depositor }) => depositor))]
  const balances = await session.query<{ depositor: Address; free: bigint }>(
    `select depositor, available - pending - doubtful as free from balances where depositor = any($1) order by depositor for update`,
    [depositors],
  )
  const known = await session.query<{ withdrawal: string }>(
    'select withdrawal from burn_intents where spec_hash = any($1)',
    [hashes],
  )
  const [first] = known
  if (first !== undefined) {
    const isSame = known.length === hashes.length && known.every(({ withdrawal }) => withdrawal === first.withdrawal)
    if (isSame) return first.withdrawal
    throw new IntentRefusedError('some of these burn intents were used before')
  }
  const free = new Map(balances.map((balance) => [balance.depositor, balance.free]))
  const withdrawal = randomUUID()
  for (const [position, order] of intents.entries()) {
    const left = (free.get(order.depositor) ?? 0n) - order.intent.spec.value
    if (left < 0n) throw new IntentRefusedError('insufficient balance')
    free.set(order.depositor, left)
    await insertOrder(session, withdrawal, position, order)
  }
  return withdrawal
}

async function insertOrder(session: Session, withdrawal: string, position: number, order: SignedBurnIntent) {
  const { intent, signature, specHash, depositor, recipient } = order
  const data = encodeFunctionData({
    abi: settlementGatewayAbi,
    functionName: 'instantWithdraw',
    args: [intent, signature],
  })
  await session.query(
    `insert into burn_intents (spec_hash, withdrawal, position, depositor, recipient, value, max_block_height, data)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [specHash, withdrawal, position, depositor, recipient, intent.spec.value, intent.maxBlockHeight, data],
  )
  await session.query('update balances set pending = pending + $2 where depositor = $1', [depositor, intent.spec.value])
}

function errorNameOf(data: Hex): string | undefined {
  try {
    return decodeErrorResult({ abi: settlementGatewayAbi, data }).errorName
  } catch {
    return undefined
  }
}
