import { randomUUID } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import {
  advancePayout,
  findOpenPayouts,
  insertPayout,
  lockRevenue,
  type Payout,
  type ReadBalance,
  readPayable,
  touchPayout,
} from '../ledger/payouts.ts'
import { readWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { saltOf } from '../signer/nonce.ts'
import { SigningRefusedError } from '../signer/signing-request.ts'
import { burnIntent, payOutMax } from '../signer/signing-terms.ts'
import { isSellerShort } from './solvency.ts'
import type { WithdrawParts } from './withdraw.ts'
import { feeTaken } from './withdrawal-fee.ts'

const payoutsMax = 20

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
    if (asked > payOutMax) throw new PayoutAboveMostError(asked)
    const feeMax = await readWithdrawalFeeMax(connection)
    if (asked <= feeMax) throw new PayoutBelowFeeError(asked, feeMax)
    await insertPayout(connection, { id, amount: asked, feeMax, recipient })
  })
  return id
}

/** Advances every open payout by one step. A failing one does not delay the others. Returns how many are open. */
export async function advancePayouts(parts: WithdrawParts): Promise<number> {
  const { database, onAlarm } = parts
  const open = await findOpenPayouts(database, payoutsMax)
  for (const payout of open) {
    try {
      await (payout.gatewayId === undefined ? submit(parts, payout) : awaitPayment(parts, payout))
    } catch (error) {
      if (error instanceof SigningRefusedError) await refuse(parts, payout, error)
      else onAlarm('a payout is waiting', { payout: payout.id, err: error })
    }
    await touchPayout(database, payout)
  }
  return open.length
}

async function submit(parts: WithdrawParts, payout: Payout): Promise<void> {
  const { id, amount, feeMax, recipient, state } = payout
  const { database, signer, gatewayClient, signingTerms, failpoint, onAlarm } = parts
  // A payout that was submitted before continues: it may already be paid.
  if (state === 'requested' && (await isSellerShort(database))) {
    return onAlarm('payout postponed: the seller has less than it owes', { payout: id })
  }
  const intent = burnIntent(signingTerms, {
    depositor: signingTerms.seller,
    recipient: recipient as Address,
    value: amount - feeMax,
    maxFee: feeMax,
    salt: saltOf('payout', id),
  })
  // A payout that may have been submitted is submitted again unchanged, even if the payout address has changed.
  const signature: Hex =
    state === 'sent' && payout.signature !== undefined
      ? payout.signature
      : await signer.sign({ operation: 'payout', payout: id, intent })
  // Recorded before the call: from here on the payout may be paid, whatever the call returns. The same salt makes a retry the same
  // intent. If the payout has ended in the meantime, it is not submitted: its money may already belong to another payout.
  if (!(await advancePayout(database, payout, { state: 'sent', signature }))) return
  const sent = { ...payout, attempts: payout.attempts + 1 }
  failpoint('before_payout')
  const answer = await gatewayClient.withdraw(intent, signature)
  if (answer.state === 'received') {
    await advancePayout(database, sent, { state: 'sent', gatewayId: answer.id })
    return
  }
  onAlarm('the gateway did not accept a payout', { payout: id, reason: answer.reason })
  // Refused at the first attempt: it was never accepted. After an unknown outcome a refusal may mean that it was already paid.
  if (answer.state === 'failed' && state === 'requested')
    await advancePayout(database, sent, { state: 'failed', reason: answer.reason })
}

/** A refusal by the signer is final, except for its hourly limit: then the payout waits. */
async function refuse({ database, onAlarm }: WithdrawParts, payout: Payout, error: SigningRefusedError): Promise<void> {
  const { reason, message } = error
  onAlarm('the signer refuses a payout', { payout: payout.id, reason, message })
  if (reason === 'hour_cap' || payout.state !== 'requested') return
  await advancePayout(database, payout, { state: 'failed', reason: `refused: ${reason}` })
}

async function awaitPayment(parts: WithdrawParts, payout: Payout): Promise<void> {
  const { id, gatewayId, feeMax } = payout
  const paid = await parts.gatewayClient.withdrawal(gatewayId!)
  if (paid === undefined) {
    parts.onAlarm('the gateway has lost a payout', { payout: id, transfer: gatewayId })
    return submit(parts, payout)
  }
  const fee = paid.state === 'confirmed' ? (feeTaken(paid, feeMax) ?? feeMax) : undefined
  if (paid.state === 'failed') parts.onAlarm('a payout failed', { payout: id, reason: paid.reason })
  if (paid.state !== 'pending') await advancePayout(parts.database, payout, { ...paid, state: paid.state, fee })
}

export class PayoutTooLargeError extends OperatorError {
  constructor(amount: Usdc, payable: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: ${format(payable)} USDC can. The rest is owed to accounts or may be refunded to retries.`,
    )
  }
}

/** Above the signer's limit: it would never be signed. */
class PayoutAboveMostError extends OperatorError {
  constructor(amount: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out in one go: the maximum is ${format(fromAtomic(payOutMax))} USDC. Pay it out in parts.`,
    )
  }
}

class PayoutBelowFeeError extends OperatorError {
  constructor(amount: Usdc, feeMax: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: the gateway fee can be up to ${format(feeMax)} USDC. Pay out more.`,
    )
  }
}
