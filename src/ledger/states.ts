// The closed lists of the ledger's tables. `states.test.ts` compares them with the constraints and partial indexes of the
// schema.

/** Statuses of rows of `requests`. */
export const endedStatuses = ['succeeded', 'failed', 'cancelled', 'refused'] as const
export type EndedStatus = (typeof endedStatuses)[number]

/** Statuses in the request log, which also shows open requests. */
export const requestStatuses = ['held', ...endedStatuses] as const
export type RequestStatus = (typeof requestStatuses)[number]

/** Where the token counts of a request come from: reported by the upstream, or counted by us. */
export const usageSources = ['upstream', 'counted'] as const
export type UsageSource = (typeof usageSources)[number]

/** The gateway's states. `submitted`: may have been sent. `unknown`: was sent, without a clear answer. */
export const paymentStates = ['submitted', 'received', 'batched', 'completed', 'failed', 'unknown'] as const
export type PaymentState = (typeof paymentStates)[number]

/** Of a transfer on chain: docs in `settlement/transfers/machine.ts`. */
export const transferStates = ['requested', 'sent', 'received', 'batched', 'confirmed', 'failed'] as const
export type TransferState = (typeof transferStates)[number]
export const transferKinds = ['withdrawal', 'payout', 'refund', 'x402'] as const
export type TransferKind = (typeof transferKinds)[number]

/** A withdrawal or refund as the customer sees it: `sent` until it is paid. */
export const withdrawalStates = ['requested', 'sent', 'confirmed', 'failed'] as const
export type WithdrawalState = (typeof withdrawalStates)[number]

export const sweepStates = ['planned', 'sent', 'confirmed', 'credited', 'failed'] as const
export type SweepState = (typeof sweepStates)[number]

/** A deposit's state as the customer sees it, from its transfer to its credit. */
export const depositStates = ['seen', 'sweeping', 'confirmed', 'credited', 'failed'] as const
export type DepositState = (typeof depositStates)[number]

// Money of rows in these states can still move. As SQL with the exact spelling of the partial indexes: any other spelling does
// not use them.

const paymentStatesOpen: readonly PaymentState[] = ['submitted', 'received', 'batched', 'unknown']
export const openPaymentStates = sqlList(paymentStatesOpen)
export const openTransferStates = sqlList<TransferState>(['requested', 'sent', 'received', 'batched'])
/** The transfers that an account sees as withdrawals. */
export const withdrawalKinds = sqlList<TransferKind>(['withdrawal', 'refund'])
/** Sweeps whose transaction is in no block yet. */
export const openSweepStates = sqlList<SweepState>(['planned', 'sent'])
/** Sweeps whose amount is not credited yet. */
export const uncreditedSweepStates = sqlList<SweepState>(['planned', 'sent', 'confirmed'])

export function isPaymentOpen(state: PaymentState): boolean {
  return paymentStatesOpen.includes(state)
}

export function withdrawalStateOf(state: TransferState): WithdrawalState {
  return state === 'received' || state === 'batched' ? 'sent' : state
}

function sqlList<State extends string>(states: readonly State[]): string {
  return `(${states.map((state) => `'${state}'`).join(', ')})`
}
