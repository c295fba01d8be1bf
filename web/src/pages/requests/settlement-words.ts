import type { LedgerRequest } from '../../api/shapes.ts'
import { formatCount } from '../../money/format.ts'
import type { Mark } from '../../ui/state-mark.tsx'

type Settled = Pick<LedgerRequest, 'status' | 'settlement'>

const words: Readonly<Record<LedgerRequest['settlement']['state'], readonly [Mark, string]>> = {
  none: ['charged', 'Nothing to settle: nothing was charged'],
  unpaid: ['pending', 'Waiting for the next payment'],
  prepaid: ['settled', 'Paid in advance over x402'],
  submitted: ['pending', 'Payment on its way to the gateway'],
  received: ['pending', 'Payment accepted by the gateway'],
  batched: ['pending', 'Payment in a batch, waiting for confirmation'],
  completed: ['settled', 'Settled on chain'],
  failed: ['failed', 'Payment failed; the charge goes into the next payment'],
  unknown: ['pending', 'No clear answer from the gateway; checking again'],
}

/** The state of a request's charge on chain. */
export function settlementWords({ status, settlement }: Settled): readonly [Mark, string] {
  if (status === 'held') return ['pending', 'Settles after the request ends']
  // A payment whose charges and refunds cancel out moves nothing: there is no transaction to wait for.
  if (settlement.state === 'completed' && settlement.payment?.value_atomic === '0')
    return ['settled', 'Settled: charges and refunds of this payment add up to zero']
  return words[settlement.state]
}

/** Which payment covers the request, and how many other entries of the account. Undefined while none does. */
export function paidTogether({ settlement: { payment, state } }: Settled): string | undefined {
  if (payment === null || state === 'none') return undefined
  const others = payment.entries - 1
  if (others === 0) return `Paid alone in payment ${payment.number}`
  return `Paid together with ${formatCount(others)} ${others === 1 ? 'request' : 'requests'} in payment ${payment.number}`
}
