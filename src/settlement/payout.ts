import { randomUUID } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { insertPayout, lockRevenue, type ReadBalance, readPayable } from '../ledger/payouts.ts'
import { readWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import { payOutMax } from '../signer/signing-terms.ts'

/**
 * Requests a payout of the seller's revenue. What the seller owes to accounts stays at the gateway. The gateway's fee is deducted from
 * the amount: the recipient gets the amount less the maximum fee.
 */
export async function requestPayout(
  database: Database,
  amount: Usdc | 'all',
  recipient: Address,
  readBalance: ReadBalance,
): Promise<string> {
  const id = randomUUID()
  await database.transaction(async (connection) => {
    await lockRevenue(connection)
    const payable = await readPayable(connection, readBalance)
    const asked = amount === 'all' ? payable : amount
    if (asked <= 0n || asked > payable) throw new PayoutTooLargeError(asked, payable)
    // Above the signer's limit: it would never be signed.
    if (asked > payOutMax)
      throw new OperatorError(
        `${format(asked)} USDC cannot be paid out in one go: the maximum is ${format(fromAtomic(payOutMax))} USDC. Pay it out in parts.`,
      )
    const feeMax = await readWithdrawalFeeMax(connection)
    if (asked <= feeMax)
      throw new OperatorError(
        `${format(asked)} USDC cannot be paid out: the gateway fee can be up to ${format(feeMax)} USDC. Pay out more.`,
      )
    await insertPayout(connection, { id, amount: asked, feeMax, counterparty: recipient })
  })
  return id
}

export class PayoutTooLargeError extends OperatorError {
  constructor(amount: Usdc, payable: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: ${format(payable)} USDC can. The rest is owed to accounts or may be refunded to retries.`,
    )
  }
}
