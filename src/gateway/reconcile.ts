import type { Address } from 'viem'
import type { Database } from '../db/database.ts'
import type { OnAlarm } from './alarm.ts'
import type { ChainNode } from './chain-node.ts'
import { readChainState, rewind } from './chain-state.ts'
import { viewBalance } from './contract-views.ts'
import type { GatewayTerms } from './terms.ts'

export type ReconcilerOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly clock: () => number
  /** How often some accounts are compared. */
  readonly reconcileMs: number
  readonly onAlarm: OnAlarm
}

type Row = {
  readonly depositor: Address
  readonly available: bigint
  readonly withdrawing: bigint
  readonly checkedHeight: bigint
}

const accountsMax = 25

/**
 * Compares balances with the contract's own view of them, those that changed first. When they disagree the logs are read
 * again; when that does not help, the smaller number counts and an operator is called.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #suspects = new Set<Address>()
  #reconciledAtMs = 0

  constructor(options: ReconcilerOptions) {
    this.#options = options
  }

  async reconcile(head: bigint): Promise<void> {
    const { database, clock, reconcileMs } = this.#options
    if (clock() - this.#reconciledAtMs < reconcileMs) return
    const { processedHeight } = await readChainState(database)
    if (processedHeight !== head) return
    const rows = await database.query<Row>(
      `select depositor, available, withdrawing, checked_height as "checkedHeight" from balances
        order by changed_height > checked_height desc, checked_height limit $1`,
      [accountsMax],
    )
    for (const row of rows) await this.#compare(row, head)
    this.#reconciledAtMs = clock()
  }

  async #compare(row: Row, head: bigint): Promise<void> {
    const { database, node, terms, onAlarm } = this.#options
    const [available, withdrawing] = await Promise.all([
      viewBalance(node, terms, 'availableBalance', row.depositor, head),
      viewBalance(node, terms, 'withdrawingBalance', row.depositor, head),
    ])
    if (available === row.available && withdrawing === row.withdrawing) {
      this.#suspects.delete(row.depositor)
      await database.query('update balances set checked_height = $2 where depositor = $1', [row.depositor, head])
      return
    }
    const message = `${row.depositor} has ${available} and ${withdrawing} withdrawing at block ${head}; the books say ${row.available} and ${row.withdrawing}.`
    if (!this.#suspects.has(row.depositor)) {
      this.#suspects.add(row.depositor)
      onAlarm({ code: 'logs_missing', message })
      await rewind(database, row.checkedHeight)
      return
    }
    onAlarm({ code: 'balance_mismatch', message })
    await database.query(
      `update balances set available = least(available, $2::int8), withdrawing = least(withdrawing, $3::int8), checked_height = $4
        where depositor = $1`,
      [row.depositor, available, withdrawing, head],
    )
  }
}
