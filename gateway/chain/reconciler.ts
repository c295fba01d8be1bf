import type { Address } from 'viem'
import type { ChainNode } from '../../src/chain/node.ts'
import { textArray } from '../../src/db/array-literal.ts'
import type { Database } from '../../src/db/database.ts'
import type { OnAlarm } from '../alarm.ts'
import type { GatewayTerms } from '../terms.ts'
import { type ContractBalance, viewBalances, viewHoldings } from './contract-views.ts'
import { readChainState, rewind } from './state.ts'

export type ReconcilerOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly clock: () => number
  /** Interval between comparisons of some accounts. */
  readonly reconcileMs: number
  readonly onAlarm: OnAlarm
}

type BalanceRow = {
  readonly depositor: Address
  readonly available: bigint
  readonly withdrawing: bigint
  readonly checkedHeight: bigint
}

const accountsMax = 25
/** How often the logs are read again before an unexplained surplus is accepted as a transfer without a deposit. */
const doubtsMax = 5

/**
 * Compares balances with the contract's own, recently changed ones first. When they differ, the logs are read again. While they
 * still differ, the smaller number counts and an alarm is raised.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #suspects = new Set<Address>()
  #reconciledAtMs = 0
  #doubts = 0

  constructor(options: ReconcilerOptions) {
    this.#options = options
  }

  async reconcile(head: bigint): Promise<void> {
    const { database, clock, reconcileMs } = this.#options
    if (clock() - this.#reconciledAtMs < reconcileMs) return
    const { processedHeight } = await readChainState(database)
    if (processedHeight !== head) return
    const rows = await database.query<BalanceRow>(
      `select depositor, available, withdrawing, checked_height as "checkedHeight" from balances
        where changed_height <= $2 order by changed_height > checked_height desc, checked_height limit $1`,
      [accountsMax, head],
    )
    const { node, terms } = this.#options
    const depositors = rows.map(({ depositor }) => depositor)
    const views = await viewBalances(node, terms, depositors, head)
    const agreed = rows.filter((row, index) => isSame(row, views[index]!))
    await this.#agree(
      agreed.map(({ depositor }) => depositor),
      head,
    )
    for (const [index, row] of rows.entries()) {
      if (!isSame(row, views[index]!)) await this.#doubt(row, views[index]!, head)
    }
    await this.#compareSums(head)
    this.#reconciledAtMs = clock()
  }

  async #doubt(row: BalanceRow, { available, withdrawing }: ContractBalance, head: bigint): Promise<void> {
    const { database, onAlarm } = this.#options
    const message = `${row.depositor} has ${available} and ${withdrawing} withdrawing at block ${head}; the database has ${row.available} and ${row.withdrawing}.`
    const isSuspect = this.#suspects.has(row.depositor)
    onAlarm({ code: isSuspect ? 'balance_mismatch' : 'logs_missing', message })
    this.#suspects.add(row.depositor)
    // The database is not changed: an event that arrives later would then count twice.
    const doubtful = row.available > available ? row.available - available : 0n
    await database.query('update balances set doubtful = $2 where depositor = $1', [row.depositor, doubtful])
    await rewind(database, row.checkedHeight)
  }

  /**
   * The sum of all balances equals what the contract holds, except for USDC that was sent to it without a deposit. This detects a
   * deposit of an unknown depositor whose log the node did not return.
   */
  async #compareSums(head: bigint): Promise<void> {
    const { database, node, terms, onAlarm } = this.#options
    const holdings = await viewHoldings(node, terms, head)
    const [books] = await database.query<{ sum: bigint; changedHeight: bigint; stray: bigint; agreedHeight: bigint }>(
      `select (select coalesce(sum(available + withdrawing), 0)::int8 from balances) as sum,
              (select coalesce(max(changed_height), 0) from balances) as "changedHeight",
              stray, agreed_height as "agreedHeight" from chain`,
    )
    const { sum, changedHeight, stray, agreedHeight } = books!
    if (changedHeight > head) return
    const unexplained = holdings - sum
    if (unexplained === stray) {
      this.#doubts = 0
      await database.query('update chain set agreed_height = $1', [head])
      return
    }
    this.#doubts += 1
    const message = `The contract holds ${holdings} at block ${head}; the database has ${sum}, plus ${stray} without an owner.`
    onAlarm({ code: unexplained < 0n ? 'balance_mismatch' : 'logs_missing', message })
    // The logs were read often enough, so the surplus has no owner. If its deposit appears later, the same comparison detects that.
    if (this.#doubts > doubtsMax && unexplained >= 0n)
      await database.query('update chain set stray = $1', [unexplained])
    else await rewind(database, agreedHeight)
  }

  async #agree(depositors: readonly Address[], head: bigint): Promise<void> {
    for (const depositor of depositors) this.#suspects.delete(depositor)
    if (depositors.length === 0) return
    await this.#options.database.query(
      'update balances set checked_height = $2, doubtful = 0 where depositor = any ($1::text[])',
      [textArray(depositors), head],
    )
  }
}

function isSame(row: BalanceRow, view: ContractBalance): boolean {
  return view.available === row.available && view.withdrawing === row.withdrawing
}
