import { fromAtomic, type Usdc } from '../../../../src/money/usdc.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { atomic, formatCharge } from '../../money/format.ts'

type Paid = Pick<
  LedgerRequest,
  'status' | 'held_atomic' | 'extended_atomic' | 'charged_atomic' | 'given_back_atomic' | 'ended_at'
>

/** The quote and its extensions for searches. */
export function mostHeld(request: Pick<Paid, 'held_atomic' | 'extended_atomic'>): Usdc {
  return fromAtomic(atomic(request.held_atomic) + atomic(request.extended_atomic))
}

/** The part of the hold that was released at the end. */
export function returned(request: Pick<Paid, 'held_atomic' | 'extended_atomic' | 'charged_atomic'>): Usdc {
  return fromAtomic(mostHeld(request) - atomic(request.charged_atomic))
}

/** What became of the money of one request, in one sentence. */
export function chargeSentence(request: Paid): string {
  const charged = atomic(request.charged_atomic)
  const held = formatCharge(mostHeld(request))
  if (request.status === 'held') return `We hold ${held} while this request runs.`
  if (request.status === 'refused') return 'Refused before it started. Nothing was held or charged.'
  if (charged === 0n) {
    const when = request.ended_at === null ? '' : ` at ${new Date(request.ended_at).toLocaleTimeString('en-GB')}`
    return `You were charged $0.000000. The hold of ${held} was released${when}.`
  }
  const sentence = `We held ${held}, used ${formatCharge(charged)}, returned ${formatCharge(returned(request))}.`
  const givenBack = atomic(request.given_back_atomic)
  return givenBack === 0n ? sentence : `${sentence} ${formatCharge(givenBack)} of the charge was refunded later.`
}
