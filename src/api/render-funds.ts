import type { z } from 'zod'
import type { GivenBack } from '../ledger/adjustments.ts'
import type { Balance } from '../ledger/balance.ts'
import type { ListedDeposit } from '../ledger/deposits.ts'
import { withdrawalStateOf } from '../ledger/states.ts'
import type { Transfer } from '../ledger/transfers.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'
import type {
  adjustment as adjustmentShape,
  balance as balanceShape,
  deposit as depositShape,
  withdrawal as withdrawalShape,
} from '../openapi/contracts/funds.ts'
import { hexOf } from './render-request.ts'

export type RenderedBalance = z.output<typeof balanceShape>
export type RenderedDeposit = z.output<typeof depositShape>
export type RenderedWithdrawal = z.output<typeof withdrawalShape>
export type RenderedAdjustment = z.output<typeof adjustmentShape>

export function renderBalance(
  balance: Balance,
  { inFlightCap, withdrawalMin }: { readonly inFlightCap: Usdc; readonly withdrawalMin: Usdc },
): RenderedBalance {
  // What the gateway may keep as its fee cannot arrive.
  const arrivingMin = fromAtomic(balance.withdrawalFeeMax + 1n)
  return {
    object: 'balance',
    account_id: balance.accountId,
    ...moneyFields({
      available: balance.available,
      held: balance.held,
      extended: balance.extended,
      gateway: balance.gateway,
      credit: balance.credit,
      refundable: balance.refundable,
      unsettled: balance.unsettled,
      in_flight: fromAtomic(balance.held + balance.extended),
      in_flight_cap: inFlightCap,
      pending_deposits: balance.pendingDeposits,
      pending_withdrawals: balance.pendingWithdrawals,
      withdrawal_min: arrivingMin > withdrawalMin ? arrivingMin : withdrawalMin,
      withdrawal_fee_max: balance.withdrawalFeeMax,
      deposited: balance.deposited,
      withdrawn: balance.withdrawn,
      charged: balance.charged,
      given_back: balance.givenBack,
    }),
    open_requests: balance.openRequests,
    oldest_hold_at: balance.oldestHoldAt?.toISOString() ?? null,
    at: balance.at.toISOString(),
  }
}

export function renderDeposit(deposit: ListedDeposit): RenderedDeposit {
  const credited = {
    name: 'credited' as const,
    done: deposit.state === 'credited',
    at: isoOf(deposit.creditedAt),
    // Without a sweep it is the transaction that brought the money, such as the batch of a payment over x402.
    tx_hash: deposit.seenAt === undefined ? hexOf(deposit.seenTxHash) : null,
    block: deposit.creditedBlock?.toString() ?? null,
  }
  const onChain = [
    {
      name: 'seen' as const,
      done: true,
      at: isoOf(deposit.seenAt),
      tx_hash: hexOf(deposit.seenTxHash),
      block: deposit.seenBlock?.toString() ?? null,
    },
    {
      name: 'swept' as const,
      done: deposit.sweptAt !== undefined,
      at: isoOf(deposit.sweptAt),
      tx_hash: hexOf(deposit.sweepTxHash),
      block: null,
    },
  ]
  return {
    object: 'deposit',
    id: deposit.id,
    ...moneyFields({ amount: deposit.amount }),
    source: deposit.source,
    sender: deposit.sender ?? null,
    state: deposit.state,
    reason: deposit.reason ?? null,
    waits_until: isoOf(deposit.waitsUntil),
    tx_hash: hexOf(deposit.seenTxHash),
    created_at: deposit.createdAt.toISOString(),
    steps: inOrder(deposit.seenAt === undefined ? [credited] : [...onChain, credited]),
  }
}

const withdrawalOrder = ['requested', 'sent', 'confirmed'] as const

export function renderWithdrawal(withdrawal: Transfer): RenderedWithdrawal {
  const state = withdrawalStateOf(withdrawal.state)
  const isRefund = withdrawal.kind === 'refund'
  const reached = withdrawalOrder.indexOf(state as (typeof withdrawalOrder)[number])
  const times = {
    requested: withdrawal.createdAt,
    settled: withdrawal.readyAt,
    sent: withdrawal.sentAt,
    confirmed: state === 'confirmed' ? withdrawal.changedAt : undefined,
  }
  const step = (name: keyof typeof times) => ({
    name,
    done:
      name === 'settled' ? withdrawal.readyAt !== undefined || reached > 0 : reached >= withdrawalOrder.indexOf(name),
    at: isoOf(times[name]),
    tx_hash: name === 'sent' || name === 'confirmed' ? (withdrawal.transactionHash ?? null) : null,
    block: null,
  })
  return {
    object: 'withdrawal',
    id: withdrawal.id,
    ...moneyFields({
      amount: withdrawal.amount,
      receives: fromAtomic(withdrawal.amount - withdrawal.feeMax),
      fee: withdrawal.fee ?? withdrawal.feeMax,
    }),
    recipient: withdrawal.counterparty,
    is_refund: isRefund,
    state,
    reason: withdrawal.reason ?? null,
    tx_hash: withdrawal.transactionHash ?? null,
    created_at: withdrawal.createdAt.toISOString(),
    changed_at: withdrawal.changedAt.toISOString(),
    // A wallet account pays in advance, so nothing has to be settled first.
    steps: inOrder([step('requested'), ...(isRefund ? [] : [step('settled')]), step('sent'), step('confirmed')]),
  }
}

export function renderAdjustment({ id, amount, reason, createdAt }: GivenBack): RenderedAdjustment {
  return { object: 'adjustment', id, ...moneyFields({ amount }), reason, created_at: createdAt.toISOString() }
}

type Step = { readonly done: boolean; readonly at: string | null }

/**
 * Makes the times of steps consistent: a step that is done has a time, and none is later than the following one. Some are recorded
 * shortly after their successor; these get the time of the next recorded step.
 */
function inOrder<Some extends Step>(steps: readonly Some[]): Some[] {
  let last: string | null = null
  return steps.map((step, index) => {
    if (!step.done) return { ...step, at: null }
    const noted = step.at ?? steps.slice(index).find(({ done, at }) => done && at !== null)?.at ?? last
    last = last !== null && (noted === null || noted < last) ? last : noted
    return { ...step, at: last }
  })
}

function isoOf(instant: Date | undefined): string | null {
  return instant?.toISOString() ?? null
}
