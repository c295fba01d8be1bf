import type { Address } from 'viem'
import type { Database } from '../../db/database.ts'
import type { OnAlarm } from '../alarm.ts'
import type { GatewayTerms } from '../terms.ts'
import { viewBalance, viewHoldings } from './contract-views.ts'
import type { ChainNode } from './node.ts'
import { readChainState, rewind } from './state.ts'

export type ReconcilerOptions = {
  readonly database: Database
  readonly node: ChainNode
  readonly terms: GatewayTerms
  readonly clock: () => number
  /** How often some accounts are compared. */
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
/** How often the logs are read again before what they do not explain is taken for a gift. */
const doubtsMax = 5

/**
 * Compares balances with the contract's own view of them, those that changed first. When they disagree the logs are read
 * again; as long as that does not help, the smaller number counts and an operator is called.
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
    for (const row of rows) await this.#compare(row, head)
    await this.#compareSums(head)
    this.#reconciledAtMs = clock()
  }

  async #compare(row: BalanceRow, head: bigint): Promise<void> {
    const { database, node, terms, onAlarm } = this.#options
    const [available, withdrawing] = await Promise.all([
      viewBalance(node, terms, 'availableBalance', row.depositor, head),
      viewBalance(node, terms, 'withdrawingBalance', row.depositor, head),
    ])
    const isSame = available === row.available && withdrawing === row.withdrawing
    if (isSame) return this.#agree(row.depositor, head)
    const message = `${row.depositor} has ${available} and ${withdrawing} withdrawing at block ${head}; the books say ${row.available} and ${row.withdrawing}.`
    const isSuspect = this.#suspects.has(row.depositor)
    onAlarm({ code: isSuspect ? 'balance_mismatch' : 'logs_missing', message })
    this.#suspects.add(row.depositor)
    // The books themselves are not touched: an event that is told later would then count twice.
    const doubtful = row.available > available ? row.available - available : 0n
    await database.query('update balances set doubtful = $2 where depositor = $1', [row.depositor, doubtful])
    await rewind(database, row.checkedHeight)
  }

  /**
   * All balances together are what the contract holds, but for USDC that was sent to it without a deposit. It finds the deposit
   * of one whom we have never heard of, because its log was kept from us.
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
    const message = `The contract holds ${holdings} at block ${head}, the books say ${sum} and ${stray} of nobody.`
    onAlarm({ code: unexplained < 0n ? 'balance_mismatch' : 'logs_missing', message })
    // Asked for often enough: it is nobody's. Should a deposit come to light later, this is found out in the same way.
    if (this.#doubts > doubtsMax && unexplained >= 0n)
      await database.query('update chain set stray = $1', [unexplained])
    else await rewind(database, agreedHeight)
  }

  async #agree(depositor: Address, head: bigint): Promise<void> {
    this.#suspects.delete(depositor)
    await this.#options.database.query('update balances set checked_height = $2, doubtful = 0 where depositor = $1', [
      depositor,
      head,
    ])
  }
}
