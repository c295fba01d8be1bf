import type { Database } from '../db/database.ts'
import type { SettlementFailpoint } from '../failpoints.ts'
import {
  advanceWithdrawal,
  findOpenWithdrawals,
  keepOrderSignature,
  touchWithdrawal,
  type Withdrawal,
} from '../ledger/withdrawals.ts'
import type { Address, Hex } from '../signer/address.ts'
import { nonceOf, saltOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { SigningRefusedError, type TransferRequest } from '../signer/signing-request.ts'
import { burnIntent, type SigningTerms, windowOf } from '../signer/signing-terms.ts'
import { type PaidResource, type PaymentTerms, paymentPayload, paymentRequirements } from './authorization.ts'
import type { Rail } from './rail.ts'
import { isSellerShort } from './solvency.ts'
import { feeTaken } from './withdrawal-fee.ts'

export type WithdrawParts = {
  readonly database: Database
  readonly signer: Signer
  readonly rail: Rail
  readonly terms: PaymentTerms
  readonly signingTerms: SigningTerms
  readonly resource: PaidResource
  readonly failpoint: SettlementFailpoint
  readonly onAlarm: (what: string, details: object) => void
}

const withdrawalsMax = 50
// The gateway wants seven days of the eight to be left: what had to wait for its money gets a new window.
const windowAgeMsMax = 12 * 60 * 60 * 1000
/** Payments that are on their way to the seller are there by then. */
const creditWaitMsMax = 10 * 60 * 1000

/** Takes every open withdrawal one step on. One that cannot move does not hold up its neighbours. Returns how many are open. */
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

function advance(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  switch (withdrawal.state) {
    case 'requested':
      return withdrawal.creditBack > 0n ? payBack(parts, withdrawal) : order(parts, withdrawal)
    case 'returning':
      return withdrawal.returnId === undefined ? payBack(parts, withdrawal) : awaitReturn(parts, withdrawal)
    case 'returned':
      return order(parts, withdrawal)
    default:
      return withdrawal.railId === undefined ? order(parts, withdrawal) : awaitPayment(parts, withdrawal)
  }
}

/** The credit is the seller's until it is paid back into the account's balance at the gateway. */
async function payBack(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, signer, rail, terms, resource, onAlarm } = parts
  const authorization = await returnOf(parts, withdrawal)
  // Handed in before, perhaps: then what became of it is asked first.
  if (withdrawal.state === 'returning' && (await adoptReturn(parts, withdrawal, authorization))) return
  const funds = await rail.balance(terms.seller)
  // It has not been paid itself yet: payments that are on their way will cover it.
  if (funds < withdrawal.creditBack || (await isSellerShort(database))) {
    const { id, creditBack, createdAt } = withdrawal
    if (Date.now() - createdAt.getTime() > creditWaitMsMax)
      onAlarm('the seller has too little to pay credit back', {
        withdrawal: id,
        owed: `${creditBack}`,
        has: `${funds}`,
      })
    return
  }
  const signature = await signer.signReturn(authorization)
  // From here on it may be on its way, whatever we hear of it. One that has ended since it was read is not handed in: its credit is back.
  if (!(await advanceWithdrawal(database, withdrawal, { state: 'returning' }))) return
  parts.failpoint('before_return')
  const returning = { ...withdrawal, state: 'returning' as const }
  const payment = { ...authorization, operation: 'authorization' } as const
  const requirements = paymentRequirements(payment, terms)
  const answer = await rail.settle(paymentPayload(payment, signature, terms, resource), requirements)
  parts.failpoint('after_return')
  if (answer.state === 'received') {
    await advanceWithdrawal(database, returning, { state: 'returning', returnId: answer.id })
  } else if (!(await adoptReturn(parts, returning, authorization))) {
    onAlarm('credit could not be paid back', { withdrawal: withdrawal.id, reason: answer.reason })
  }
}

/** Whatever becomes of it, the nonce stays: the credit goes back once. */
async function returnOf({ signer, terms }: WithdrawParts, withdrawal: Withdrawal): Promise<TransferRequest<'return'>> {
  const { accountId, creditBack, createdAt } = withdrawal
  const nonce = withdrawal.nonce!
  const hasWaited = Date.now() - createdAt.getTime() > windowAgeMsMax
  const message = {
    from: terms.seller,
    to: await signer.addressOf(accountId),
    value: creditBack,
    ...windowOf(hasWaited ? new Date() : createdAt),
    nonce: nonceOf('return', accountId, terms.epoch, nonce),
  }
  return { operation: 'return', account: accountId, epoch: terms.epoch, sequence: nonce, domain: terms.domain, message }
}

/** Whether the gateway has the payment back. Another one under its nonce is a case for a person. */
async function adoptReturn(
  { database, rail, onAlarm }: WithdrawParts,
  withdrawal: Withdrawal,
  { message }: TransferRequest<'return'>,
): Promise<boolean> {
  const found = await rail.findTransfer(message.from, message.nonce)
  if (found === undefined) return false
  if (found.to === message.to && found.amount === message.value) {
    await advanceWithdrawal(database, withdrawal, { state: 'returning', returnId: found.id })
  } else {
    onAlarm('a nonce of ours paid something else', { withdrawal: withdrawal.id, transfer: found.id })
  }
  return true
}

async function awaitReturn(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, rail, onAlarm } = parts
  const transfer = await rail.transfer(withdrawal.returnId!)
  if (transfer === undefined) {
    onAlarm('the gateway has lost a payment', { withdrawal: withdrawal.id, transfer: withdrawal.returnId })
    return payBack(parts, withdrawal)
  }
  if (transfer.state === 'completed') await advanceWithdrawal(database, withdrawal, { state: 'returned' })
  if (transfer.state === 'failed') {
    onAlarm('credit could not be paid back', { withdrawal: withdrawal.id, reason: transfer.reason })
    await advanceWithdrawal(database, withdrawal, { state: 'failed', reason: transfer.reason ?? 'credit not returned' })
  }
}

async function order(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, signer, rail, signingTerms } = parts
  const intent = burnIntent(signingTerms, {
    depositor: await signer.addressOf(withdrawal.accountId),
    recipient: withdrawal.recipient as Address,
    // As it was ordered, for good: with another value it would be another order.
    value: withdrawal.amount - withdrawal.feeMax,
    maxFee: withdrawal.feeMax,
    salt: saltOf('withdrawal', withdrawal.id),
  })
  const { accountId: account, id } = withdrawal
  // What may have been handed in is handed in again as it was, whoever is the owner by now. What was not is asked for anew.
  const handedIn = withdrawal.state === 'sent' ? (withdrawal.signature as Hex | undefined) : undefined
  const signature =
    handedIn ?? (await signer.signWithdrawal({ operation: 'withdrawal', account, withdrawal: id, intent }))
  await keepOrderSignature(database, withdrawal, signature)
  // From here on it may be on its way, whatever we hear of it. Asked again with the same salt it is the same order. One that has
  // ended since it was read is not handed in: its money is back in the balance, and would be paid out besides.
  if (!(await advanceWithdrawal(database, withdrawal, { state: 'sent' }))) return
  parts.failpoint('before_withdraw')
  const sent = { ...withdrawal, state: 'sent' as const }
  const answer = await rail.withdraw(intent, signature)
  parts.failpoint('after_withdraw')
  if (answer.state === 'received') {
    await advanceWithdrawal(database, sent, { state: 'sent', railId: answer.id })
    return
  }
  parts.onAlarm('the gateway did not take a withdrawal', { withdrawal: id, reason: answer.reason })
  // Refused at the first try, it was never taken. After a try of unknown end a refusal may mean that it was paid before.
  const isFirst = withdrawal.state === 'requested' || withdrawal.state === 'returned'
  if (answer.state === 'failed' && isFirst) {
    await advanceWithdrawal(database, sent, { state: 'failed', reason: answer.reason })
  }
}

async function awaitPayment(parts: WithdrawParts, withdrawal: Withdrawal): Promise<void> {
  const { database, rail, onAlarm } = parts
  const paid = await rail.withdrawal(withdrawal.railId!)
  if (paid === undefined) {
    onAlarm('the gateway has lost a withdrawal', { withdrawal: withdrawal.id, transfer: withdrawal.railId })
    return order(parts, withdrawal)
  }
  if (paid.state === 'confirmed') {
    const { transactionHash } = paid
    const fee = feeTaken(paid, withdrawal.feeMax)
    if (fee === undefined)
      onAlarm('a withdrawal’s fee is not known', { withdrawal: withdrawal.id, told: `${paid.fee}` })
    await advanceWithdrawal(database, withdrawal, { state: 'confirmed', transactionHash, fee })
  }
  if (paid.state === 'failed') {
    onAlarm('a withdrawal failed', { withdrawal: withdrawal.id, reason: paid.reason })
    await advanceWithdrawal(database, withdrawal, { state: 'failed', reason: paid.reason ?? 'failed' })
  }
}

/** What the signer forbids will not pass tomorrow either, but for a limit per hour: then it waits. */
async function refuse(parts: WithdrawParts, withdrawal: Withdrawal, error: SigningRefusedError): Promise<void> {
  parts.onAlarm('the signer refuses a withdrawal', { withdrawal: withdrawal.id, reason: error.message })
  if (error.reason === 'hour_cap') return
  // Once handed in, an order may be paid: its money does not come back because a later step is refused.
  if (withdrawal.state !== 'requested' && withdrawal.state !== 'returned') return
  await advanceWithdrawal(parts.database, withdrawal, { state: 'failed', reason: `refused: ${error.reason}` })
}
