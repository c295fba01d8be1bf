import { getAddress, type Hash, type Hex } from 'viem'
import type { Database } from '../src/db/database.ts'
import { format } from '../src/money/usdc.ts'
import type { GatewayTerms } from './terms.ts'

export type BalanceAnswer = {
  readonly domain: number
  readonly depositor: string
  /** The spendable amount: the balance on chain, minus transfers that are promised and not settled yet. */
  readonly balance: string
  readonly pendingBatch: string
  readonly withdrawing: string
  readonly withdrawable: string
}

export type DepositAnswer = {
  readonly depositor: string
  readonly domain: number
  readonly transactionHash: Hash
  readonly amount: string
  readonly status: 'finalized'
  readonly blockHeight: string
  readonly blockHash: Hash
  readonly blockTimestamp: string
}

const depositsMax = 100

/** Each depositor's balance at the processed height. Amounts are decimal text. */
export async function readBalances(
  database: Database,
  terms: GatewayTerms,
  depositors: readonly Hex[],
): Promise<readonly BalanceAnswer[]> {
  const rows = await database.query<
    Record<'available' | 'withdrawing' | 'withdrawable' | 'pending', bigint> & { depositor: Hex }
  >(
    `select depositor, available - doubtful as available, withdrawing, pending,
            case when withdrawal_block <= processed_height then withdrawing else 0 end as withdrawable
       from balances, chain where depositor = any($1)`,
    [depositors],
  )
  const found = new Map(rows.map((row) => [row.depositor, row]))
  return depositors.map((depositor) => {
    const { available = 0n, pending = 0n, withdrawing = 0n, withdrawable = 0n } = found.get(depositor) ?? {}
    const free = available - pending
    return {
      domain: terms.chainId,
      depositor: getAddress(depositor),
      // A withdrawal that was started on chain can take money that was already promised: then nothing is spendable.
      balance: format(free > 0n ? free : 0n),
      pendingBatch: format(pending),
      withdrawing: format(withdrawing),
      withdrawable: format(withdrawable),
    }
  })
}

/** Newest deposits first. */
export async function readDeposits(
  database: Database,
  terms: GatewayTerms,
  depositors: readonly Hex[],
): Promise<readonly DepositAnswer[]> {
  const rows = await database.query<{
    account: Hex
    value: bigint
    hash: Hash
    block: bigint
    blockHash: Hash
    time: Date
  }>(
    `select account, value, transaction_hash as hash, block, block_hash as "blockHash", block_time as time from events
      where kind = 'Deposited' and account = any($1) order by block desc, log_index desc limit $2`,
    [depositors, depositsMax],
  )
  return rows.map(({ account, value, hash, block, blockHash, time }) => ({
    depositor: getAddress(account),
    domain: terms.chainId,
    transactionHash: hash,
    amount: format(value),
    status: 'finalized',
    blockHeight: block.toString(),
    blockHash,
    blockTimestamp: time.toISOString(),
  }))
}
