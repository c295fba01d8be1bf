import type { Address } from 'viem'
import { plainArray, textArray } from '../../src/db/array-literal.ts'
import type { Connection } from '../../src/db/database.ts'
import type { Alarm } from '../alarm.ts'
import {
  type AuthorizationName,
  type BalanceEvent,
  type GatewayEvent,
  LogsMissingError,
  type SettledBatch,
  type SkippedAuthorization,
  type SkipReason,
} from './events.ts'

type Balance = {
  available: bigint
  withdrawing: bigint
  withdrawalBlock: bigint
  pending: bigint
  changedHeight: bigint
}

/** Skip reasons that may be temporary. */
const transientReasons: readonly SkipReason[] = ['authorization_not_yet_valid', 'insufficient_balance']
const skipsMax = 20

/**
 * Brings the database up to a block, atomically: balances, transfers, batches and withdrawals. Known events are ignored, so any range
 * of blocks can be applied again.
 */
export async function applyEvents(
  connection: Connection,
  events: readonly GatewayEvent[],
  blockTimes: ReadonlyMap<bigint, Date>,
): Promise<readonly Alarm[]> {
  const fresh = await recordEvents(connection, events, blockTimes)
  if (fresh.length === 0) return []
  const batches = fresh.filter((event) => event.kind === 'BatchSettled')
  const changes = fresh.filter((event) => event.kind !== 'BatchSettled')
  await requireNoGap(connection, batches)
  const balances = await lockBalances(connection, changes, batches)
  for (const change of changes) changeBalance(balances, change)
  const alarms: Alarm[] = []
  for (const batch of batches) {
    alarms.push(...(await completeTransfers(connection, balances, batch)))
    alarms.push(...(await reexamineSkipped(connection, balances, batch)))
    await closeBatch(connection, batch)
  }
  await finalizeWithdrawals(connection, balances, changes)
  await writeBalances(connection, balances)
  return alarms
}

/** Stores the events, and returns those that are new. */
async function recordEvents(
  connection: Connection,
  events: readonly GatewayEvent[],
  blockTimes: ReadonlyMap<bigint, Date>,
): Promise<readonly GatewayEvent[]> {
  if (events.length === 0) return []
  const rows = await connection.queryPrepared<{ block: bigint; log_index: number }>(
    'record_events',
    `insert into events (block, log_index, block_hash, transaction_hash, kind, account, value, block_time, spec_hash)
     select * from unnest($1::int8[], $2::int4[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int8[],
                          $8::timestamptz[], $9::text[])
     on conflict do nothing returning block, log_index`,
    [
      plainArray(events.map(({ block }) => block)),
      plainArray(events.map(({ index }) => index)),
      textArray(events.map(({ blockHash }) => blockHash)),
      textArray(events.map(({ transactionHash }) => transactionHash)),
      textArray(events.map(({ kind }) => kind)),
      textArray(events.map((event) => (event.kind === 'BatchSettled' ? null : event.account))),
      plainArray(events.map((event) => (event.kind === 'BatchSettled' ? event.settledValue : event.value))),
      textArray(events.map(({ block }) => blockTimes.get(block)?.toISOString() ?? null)),
      textArray(events.map((event) => (event.kind === 'InstantWithdrawal' ? event.specHash : null))),
    ],
  )
  const fresh = new Set(rows.map(({ block, log_index: index }) => `${block}:${index}`))
  return events.filter(({ block, index }) => fresh.has(`${block}:${index}`))
}

/** Batch numbers have no gaps: a missing one means that the node did not return its logs. */
async function requireNoGap(connection: Connection, batches: readonly SettledBatch[]): Promise<void> {
  if (batches.length === 0) return
  const [chain] = await connection.query<{ last: bigint }>('select last_batch_id as last from chain for update')
  let last = chain!.last
  for (const { batchId } of batches) {
    if (batchId > last + 1n) throw new LogsMissingError(`batch ${batchId} follows batch ${last}: logs are missing`)
    if (batchId > last) last = batchId
  }
  await connection.query('update chain set last_batch_id = $1', [last])
}

/** The balances that these events touch, locked in address order, like every other change of balances. */
async function lockBalances(
  connection: Connection,
  changes: readonly BalanceEvent[],
  batches: readonly SettledBatch[],
): Promise<Map<Address, Balance>> {
  const rows = batches.flatMap(({ used, skipped }) => [...used, ...skipped])
  const accounts = [...new Set([...changes.map(({ account }) => account), ...rows.map(({ payer }) => payer)])]
  await connection.query(
    'insert into balances (depositor) select account from unnest($1::text[]) as account order by 1 on conflict do nothing',
    [textArray(accounts)],
  )
  const found = await connection.query<{ depositor: Address } & Balance>(
    `select depositor, available, withdrawing, withdrawal_block as "withdrawalBlock", pending, changed_height as "changedHeight"
       from balances where depositor = any($1::text[]) order by depositor for update`,
    [textArray(accounts)],
  )
  return new Map(found.map(({ depositor, ...balance }) => [depositor, balance]))
}

async function writeBalances(connection: Connection, changed: ReadonlyMap<Address, Balance>): Promise<void> {
  const balances = [...changed.values()]
  await connection.query(
    `update balances set available = now.available, withdrawing = now.withdrawing, withdrawal_block = now.withdrawal_block,
                         pending = now.pending, changed_height = now.changed_height
       from unnest($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
              as now (depositor, available, withdrawing, withdrawal_block, pending, changed_height)
      where balances.depositor = now.depositor`,
    [
      textArray([...changed.keys()]),
      plainArray(balances.map(({ available }) => available)),
      plainArray(balances.map(({ withdrawing }) => withdrawing)),
      plainArray(balances.map(({ withdrawalBlock }) => withdrawalBlock)),
      plainArray(balances.map(({ pending }) => pending)),
      plainArray(balances.map(({ changedHeight }) => changedHeight)),
    ],
  )
}

/** Follows the contract: debits take the available balance first, then the withdrawing one. */
function changeBalance(balances: ReadonlyMap<Address, Balance>, event: BalanceEvent): void {
  const balance = balances.get(event.account)!
  if (event.block > balance.changedHeight) balance.changedHeight = event.block
  switch (event.kind) {
    case 'Deposited':
      balance.available += event.value
      break
    case 'BalanceChanged':
      if (event.value >= 0n) balance.available += event.value
      else debit(balance, -event.value)
      break
    case 'WithdrawalInitiated':
      balance.available -= event.value
      balance.withdrawing += event.value
      balance.withdrawalBlock = event.withdrawalBlock
      break
    case 'WithdrawalCompleted':
      balance.withdrawing -= event.value
      break
    case 'InstantWithdrawal':
      balance.available -= event.fromAvailable
      balance.withdrawing -= event.fromWithdrawing
  }
  if (balance.withdrawing === 0n) balance.withdrawalBlock = 0n
}

function debit(balance: Balance, value: bigint): void {
  const available = balance.available > 0n ? balance.available : 0n
  const fromAvailable = value < available ? value : available
  balance.available -= fromAvailable
  balance.withdrawing -= value - fromAvailable
}

/**
 * The chain is authoritative: a transfer that it settled is completed, whichever batch it was in and whatever its status was here.
 */
async function completeTransfers(
  connection: Connection,
  balances: ReadonlyMap<Address, Balance>,
  batch: SettledBatch,
): Promise<readonly Alarm[]> {
  if (batch.used.length === 0) return []
  const { own, foreign } = await nameBatch(connection, batch)
  const paid = await connection.query<{ payer: Address; nonce: string; value: bigint; before: string }>(
    `with asked as (
       select id, status as before from transfers join unnest($1::text[], $2::text[]) as asked (payer, nonce) using (payer, nonce)
     )
     update transfers set status = 'completed', failure = null, batch = $3, foreign_batch = $4, updated_at = clock_timestamp()
       from asked where transfers.id = asked.id and before <> 'completed'
     returning payer, nonce, value, before`,
    [...namesOf(batch.used), own, foreign],
  )
  for (const { payer, value, before } of paid) {
    if (before !== 'failed') balances.get(payer)!.pending -= value
  }
  await connection.query(
    `insert into foreign_authorizations (payer, nonce, batch)
     select payer, nonce, $3 from unnest($1::text[], $2::text[]) as used (payer, nonce)
      where not exists (select from transfers where transfers.payer = used.payer and transfers.nonce = used.nonce)
     on conflict do nothing`,
    [...namesOf(batch.used), foreign],
  )
  return paid
    .filter(({ before }) => before === 'failed' || before === 'received')
    .map(({ payer, nonce, before }) => ({
      code: 'settled_elsewhere',
      message: `Batch ${batch.batchId} settled ${payer} ${nonce}, which was ${before} here.`,
    }))
}

/** Its number in this database if it was sent from here, otherwise its number on chain. */
async function nameBatch(
  connection: Connection,
  { batchId, transactionHash }: SettledBatch,
): Promise<{ readonly own: bigint | null; readonly foreign: bigint | null }> {
  const [own] = await connection.query<{ id: bigint }>(
    'select batches.id from batches join transactions using (call) where transactions.hash = $1',
    [transactionHash],
  )
  if (own !== undefined) return { own: own.id, foreign: null }
  await connection.query(
    'insert into foreign_batches (chain_batch_id, transaction_hash) values ($1, $2) on conflict do nothing',
    [batchId, transactionHash],
  )
  return { own: null, foreign: batchId }
}

/** A skipped row goes into the next batch if its reason may be temporary; otherwise it has failed permanently. */
async function reexamineSkipped(
  connection: Connection,
  balances: ReadonlyMap<Address, Balance>,
  batch: SettledBatch,
): Promise<readonly Alarm[]> {
  const alarms: Alarm[] = []
  for (const skipped of batch.skipped) {
    const { payer, nonce, reason } = skipped
    const [transfer] = await connection.query<{ id: string; value: bigint; skips: number }>(
      `select id, value, skips from transfers
        where payer = $1 and nonce = $2 and status in ('batched', 'confirmed')
          and batch = (select batches.id from batches join transactions using (call) where transactions.hash = $3)
          for update`,
      [payer, nonce, batch.transactionHash],
    )
    if (transfer === undefined) continue
    const balance = balances.get(payer)!
    const status = afterSkip(skipped, transfer.value, transfer.skips, balance)
    alarms.push({
      code: 'transfer_skipped',
      message: `Batch ${batch.batchId} skipped ${payer} ${nonce} (${reason}): ${status}.`,
    })
    if (status !== 'received') balance.pending -= transfer.value
    await connection.query(
      `update transfers set status = $2, failure = $3, skips = skips + 1, updated_at = clock_timestamp(),
              retry_at = clock_timestamp() + least(skips + 1, 60) * interval '1 s',
              batch = case when $2 = 'completed' then null else batch end
        where id = $1`,
      [transfer.id, status, status === 'failed' ? reason : null],
    )
  }
  return alarms
}

function afterSkip(
  { reason }: SkippedAuthorization,
  value: bigint,
  skips: number,
  { available, withdrawing }: Balance,
): 'received' | 'completed' | 'failed' {
  // The nonce was used, and only relayers of this operator can have used it. Marking it as failed would charge the payer twice.
  if (reason === 'nonce_already_used') return 'completed'
  if (!transientReasons.includes(reason)) return 'failed'
  if (reason === 'insufficient_balance' && (value > available + withdrawing || skips >= skipsMax)) return 'failed'
  return 'received'
}

async function closeBatch(connection: Connection, { transactionHash, settledCount, settledValue }: SettledBatch) {
  await connection.query(
    `update batches set state = 'settled', settled_by = $1, settled_count = $2, settled_value = $3
       from transactions where transactions.hash = $1 and batches.call = transactions.call`,
    [transactionHash, settledCount, settledValue],
  )
}

async function finalizeWithdrawals(
  connection: Connection,
  balances: ReadonlyMap<Address, Balance>,
  changes: readonly BalanceEvent[],
): Promise<void> {
  const hashes = changes.flatMap((event) => (event.kind === 'InstantWithdrawal' ? [event.specHash] : []))
  if (hashes.length === 0) return
  const paid = await connection.query<{ depositor: Address; value: bigint; before: string }>(
    `with asked as (select spec_hash, state as before from burn_intents where spec_hash = any($1::text[]) for update)
     update burn_intents set state = 'finalized', failure = null from asked
      where burn_intents.spec_hash = asked.spec_hash and before <> 'finalized'
     returning depositor, value, before`,
    [textArray(hashes)],
  )
  for (const { depositor, value, before } of paid) {
    if (before !== 'failed' && before !== 'expired') balances.get(depositor)!.pending -= value
  }
}

function namesOf(names: readonly AuthorizationName[]): [string, string] {
  return [textArray(names.map(({ payer }) => payer)), textArray(names.map(({ nonce }) => nonce))]
}
