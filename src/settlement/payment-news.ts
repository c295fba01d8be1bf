import type { Payment, PaymentNews } from '../ledger/payments.ts'
import { type GatewayTransfer, ledgerStateOf } from './gateway-client.ts'

export function newsOf(payment: Payment, transfer: GatewayTransfer): PaymentNews {
  return {
    payment,
    state: ledgerStateOf(transfer.state),
    gatewayId: transfer.id,
    batch: transfer.batch,
    transactionHash: transfer.transactionHash,
    batchRoot: transfer.receipt?.root,
    batchProof: transfer.receipt?.proof,
    place: transfer.place,
    reason: transfer.state === 'failed' ? (transfer.reason ?? 'failed') : undefined,
  }
}

/** Identifies a payment in logs and alarms. */
export function nameOf({ accountId, number }: Pick<Payment, 'accountId' | 'number'>): object {
  return { account: accountId, payment: number.toString() }
}
