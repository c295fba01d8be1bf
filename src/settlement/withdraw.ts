import type { Database } from '../db/database.ts'
import {
  advanceWithdrawal,
  findOpenWithdrawals,
  isSettled,
  keepWithdrawalSignature,
  touchWithdrawal,
  type Withdrawal,
} from '../ledger/withdrawals.ts'
import type { SettlementFailpoint } from '../process/failpoints.ts'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from '../signer/address.ts'
import { saltOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { SigningRefusedError } from '../signer/signing-request.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import type { GatewayClient } from './gateway-client.ts'
import { feeTaken } from './withdrawal-fee.ts'

export type WithdrawParts = {
  readonly database: Database
  readonly signer: Signer
  readonly gatewayClient: GatewayClient
  readonly signingTerms: SigningTerms
  readonly failpoint: SettlementFailpoint
  readonly onAlarm: (what: string, details: object) => void
}

const withdrawalsMax = 50

/** Advances every open withdrawal by one step. A failing one does not delay the others. Returns how many are open. */
export async function advanceWithdrawals(parts: WithdrawParts): Promise<number> {
  const open = await findOpenWithdrawals(parts.database, withdrawalsMax)
  for (const withdrawal of open) {
    try {
      await advance(parts, withdrawal)
    } catch (error) {
      if (error instanceof SigningRefusedError) await refuse(parts, withdrawal, error)
      else parts.onAlarm('a withdrawal is waiting', { withdrawal: withdrawal.id, state: withdrawal.state, err: error })
    }
    await touchWithdrawal(parts.database, withdrawal)
  }
  return open.length
}

async function advance(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  if (withdrawal.gatewayId !== undefined) return awaitPayment(parts, withdrawal)
  // Earlier charges are paid first. Then the gateway's balance of the account equals the ledger's.
  if (withdrawal.state === 'requested' && !(await isSettled(parts.database, withdrawal))) return
  return submit(parts, withdrawal)
}

async function submit(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, signer, gatewayClient, signingTerms } = parts
  const intent = burnIntent(signingTerms, {
    depositor: await signer.addressOf(withdrawal.accountId),
    recipient: withdrawal.recipient as Address,
    // Never recomputed: another value would be another intent, and could be paid twice.
    value: withdrawal.amount - withdrawal.feeMax,
    maxFee: withdrawal.feeMax,
    salt: saltOf('withdrawal', withdrawal.id),
  })
  const { accountId: account, id } = withdrawal
  // A withdrawal that may have been submitted is submitted again unchanged, even if the owner has changed. Otherwise it is signed now.
  const submitted = withdrawal.state === 'sent' ? (withdrawal.signature as Hex | undefined) : undefined
  const signature = submitted ?? (await signer.sign({ operation: 'withdrawal', account, withdrawal: id, intent }))
  await keepWithdrawalSignature(database, withdrawal, signature)
  // Recorded before the call: from here on the withdrawal may be paid, whatever the call returns. The same salt makes a retry the same
  // intent. If the withdrawal has ended in the meantime, it is not submitted: its money is back in the balance.
  if (!(await advanceWithdrawal(database, withdrawal, { state: 'sent' }))) return
  parts.failpoint('before_withdraw')
  const sent = { ...withdrawal, attempts: withdrawal.attempts + 1 }
  const answer = await gatewayClient.withdraw(intent, signature)
  parts.failpoint('after_withdraw')
  if (answer.state === 'received') {
    await advanceWithdrawal(database, sent, { state: 'sent', gatewayId: answer.id })
    return
  }
  parts.onAlarm('the gateway did not accept a withdrawal', { withdrawal: id, reason: answer.reason })
  // Refused at the first attempt: it was never accepted. After an unknown outcome a refusal may mean that it was already paid.
  if (answer.state === 'failed' && withdrawal.state === 'requested') {
    await advanceWithdrawal(database, sent, { state: 'failed', reason: answer.reason })
  }
}

async function awaitPayment(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, gatewayClient, onAlarm } = parts
  const paid = await gatewayClient.withdrawal(withdrawal.gatewayId!)
  if (paid === undefined) {
    onAlarm('the gateway has lost a withdrawal', { withdrawal: withdrawal.id, transfer: withdrawal.gatewayId })
    return submit(parts, withdrawal)
  }
  if (paid.state === 'confirmed') {
    const { transactionHash } = paid
    const fee = feeTaken(paid, withdrawal.feeMax)
    if (fee === undefined)
      onAlarm('a withdrawal’s fee is not known', { withdrawal: withdrawal.id, reported: `${paid.fee}` })
    await advanceWithdrawal(database, withdrawal, { state: 'confirmed', transactionHash, fee })
  }
  if (paid.state === 'failed') {
    onAlarm('a withdrawal failed', { withdrawal: withdrawal.id, reason: paid.reason })
    await advanceWithdrawal(database, withdrawal, { state: 'failed', reason: paid.reason ?? 'failed' })
  }
}

/** A refusal by the signer is final, except for its hourly limit: then the withdrawal waits. */
async function refuse(parts: WithdrawParts, withdrawal: Withdrawal, error: SigningRefusedError): Promise<void> {
  const { reason, message } = error
  parts.onAlarm('the signer refuses a withdrawal', { withdrawal: withdrawal.id, reason, message })
  if (reason === 'hour_cap') return
  // A submitted withdrawal may be paid. Its money must not return to the balance because a later step is refused.
  if (withdrawal.state !== 'requested') return
  await advanceWithdrawal(parts.database, withdrawal, { state: 'failed', reason: `refused: ${reason}` })
}
