import type { Payment, PaymentNews } from '../ledger/payments.ts'
import type { Transfer } from './gateway-client.ts'

/** What a transfer at the gateway says of the payment that it is. */
export function newsOf(payment: Payment, transfer: Transfer): PaymentNews {
  return {
    payment,
    // Between the block and its finality it is batched for us.
    state: transfer.state === 'confirmed' ? 'batched' : transfer.state,
    gatewayId: transfer.id,
    batch: transfer.batch,
    transactionHash: transfer.transactionHash,
    batchRoot: transfer.receipt?.root,
    batchProof: transfer.receipt?.proof,
    place: transfer.place,
    reason: transfer.state === 'failed' ? (transfer.reason ?? 'failed') : undefined,
  }
}

/** For the operator. */
export function nameOf({ accountId, number }: Pick<Payment, 'accountId' | 'number'>): object {
  return { account: accountId, payment: number.toString() }
}
