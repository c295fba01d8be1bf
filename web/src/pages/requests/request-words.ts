import { fromAtomic, type Usdc } from '../../../../src/money/usdc.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { atomic, formatCharge, formatCount } from '../../money/format.ts'
import { formatMs } from '../../ui/format-time.ts'
import type { Mark } from '../../ui/state-mark.tsx'

// What became of a request and of its money, in words.

type Described = Pick<LedgerRequest, 'status' | 'usage' | 'error' | 'stream' | 'latency'>

/** Details shown next to the status. */
export function detail(request: Described): string {
  const { status, usage, error, stream, latency } = request
  if (status === 'cancelled') {
    const tokens = usage?.completion_tokens ?? 0
    return `Client disconnected ${tokens === 0 ? 'before any output' : `after ${formatCount(tokens)} ${tokens === 1 ? 'token' : 'tokens'}`}`
  }
  if (error !== null) return error.code
  if (usage === null) return stream ? 'streaming' : 'running'
  return `${formatCount(usage.prompt_tokens)} in, ${formatCount(usage.completion_tokens)} out, ${formatMs(latency.total_ms)}`
}

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
