import type { Database } from '../db/database.ts'
import { rowOf, rowsOf } from '../db/rows.ts'
import type { Usdc } from '../money/usdc.ts'
import { openTransferStates, uncreditedSweepStates, withdrawalKinds } from './states.ts'

/** A node and the remaining time of its lease; below 0, the time since it expired. */
export type NodeState = { readonly id: string; readonly startedAt: Date; readonly leaseSeconds: number }

/** A row that should have finished by now. */
export type StuckItem = {
  readonly id: string
  readonly accountId: string
  readonly state: string
  readonly amount: Usdc
  readonly createdAt: Date
}

/** The ledger's health, besides the numbers of `readLedgerNumbers`. */
export type OperatorHealth = {
  readonly nodes: readonly NodeState[]
  readonly frozen: { readonly at: Date; readonly reason: string } | undefined
  readonly suspended: readonly {
    readonly id: string
    readonly name: string
    readonly at: Date
    readonly reason: string
  }[]
  readonly oldHolds: readonly StuckItem[]
  readonly oldWithdrawals: readonly StuckItem[]
  readonly oldSweeps: readonly StuckItem[]
  /** Metrics of other processes, by name. */
  readonly processMetrics: ReadonlyMap<string, { readonly value: number; readonly at: Date }>
}

const shownMax = 20
export const holdSecondsMax = 3_600
export const withdrawalSecondsMax = 900
export const sweepSecondsMax = 300

/** Reads one snapshot, over indexes that hold only open rows. */
export async function readOperatorHealth(database: Database): Promise<OperatorHealth> {
  return database.transaction(
    async (connection) => {
      const nodes = await rowsOf<NodeState>(
        connection.query(
          `select id, started_at, greatest(-2147483648, extract(epoch from lease_until - clock_timestamp()))::float8 as lease_seconds
           from nodes where lease_until > '-infinity' order by lease_until desc, id limit 100`,
        ),
      )
      const ledger = await rowOf<{ readonly frozenAt: Date | undefined; readonly reason: string | undefined }>(
        connection.query('select frozen_at, reason from ledger_state'),
      )
      const suspended = await connection.query<{ id: string; name: string; at: Date; reason: string }>(
        `select id, name, suspended_at as at, suspended_reason as reason from accounts
          where suspended_at is not null order by suspended_at desc limit ${shownMax}`,
      )
      const older = (seconds: number) =>
        `created_at < clock_timestamp() - interval '${seconds} seconds' order by created_at limit ${shownMax}`
      const stuck = (query: string) => rowsOf<StuckItem>(connection.query(query))
      const processMetrics = await rowsOf<{ readonly name: string; readonly value: number; readonly at: Date }>(
        connection.query('select name, value, changed_at as at from process_metrics order by name limit 100'),
      )
      return {
        nodes,
        frozen: ledger?.frozenAt === undefined ? undefined : { at: ledger.frozenAt, reason: ledger.reason ?? '' },
        suspended,
        oldHolds: await stuck(
          `select id, account_id, 'held' as state, quote + extended as amount, created_at from holds
            where ${older(holdSecondsMax)}`,
        ),
        oldWithdrawals: await stuck(
          `select id, account_id, state, amount, created_at from transfers
            where state in ${openTransferStates} and kind in ${withdrawalKinds} and ${older(withdrawalSecondsMax)}`,
        ),
        oldSweeps: await stuck(
          `select id, account_id, state, amount, created_at from sweeps
            where state in ${uncreditedSweepStates} and ${older(sweepSecondsMax)}`,
        ),
        processMetrics: new Map(processMetrics.map(({ name, value, at }) => [name, { value, at }])),
      }
    },
    { isolation: 'repeatable read', readOnly: true },
  )
}
