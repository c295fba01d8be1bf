import { operatorActor, writeAccountLog } from '../db/account-log.ts'
import type { Connection, Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import type { Account } from '../ledger/accounts.ts'
import { type Adjustment, type AdjustmentDecision, adjustAccount } from '../ledger/adjustments.ts'
import { lockRevenue, type ReadBalance, readPayable } from '../ledger/payouts.ts'
import { format, fromAtomic } from '../money/usdc.ts'

/**
 * Refunds charges as credit, or reverses such a refund. The credit is backed by the seller's money at the gateway. If that revenue was
 * already paid out, the seller would be short, and payouts, refunds and withdrawals of credit would wait. So this takes the same lock
 * as payouts and reads the same sum.
 */
export async function giveBack(
  database: Database,
  account: Pick<Account, 'partition' | 'id'>,
  adjustment: Adjustment,
  readBalance: ReadBalance,
): Promise<AdjustmentDecision> {
  return database.transaction(async (connection) => {
    await lockRevenue(connection)
    if (adjustment.amount > 0n && !(await isMade(connection, account, adjustment))) {
      const payable = await readPayable(connection, readBalance)
      if (adjustment.amount > payable)
        throw new OperatorError(
          `${format(fromAtomic(adjustment.amount))} USDC cannot be refunded: the service has ${format(payable)} USDC of settled revenue at the gateway. Wait for payments to settle, or deposit USDC for the seller.`,
        )
    }
    const decided = await adjustAccount(connection, account, adjustment)
    if (decided.decision === 'made') {
      const facts = { adjustment_id: adjustment.id, amount: adjustment.amount.toString() }
      const ref = { partition: account.partition, accountId: account.id }
      await writeAccountLog(connection, ref, { event: 'account_adjusted', actor: operatorActor, facts })
    }
    return decided
  })
}

async function isMade(
  connection: Connection,
  { partition }: Pick<Account, 'partition'>,
  { id }: Adjustment,
): Promise<boolean> {
  const rows = await connection.query('select from adjustments where partition = $1 and id = $2', [partition, id])
  return rows.length > 0
}
