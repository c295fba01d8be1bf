import type { LedgerRequest } from '../../api/shapes.ts'

export type Moment = {
  readonly name: string
  /** Since the request was received; null while it has not happened. */
  readonly afterMs: number | null
}

/** What happened when, as far as the row knows it. */
export function timelineOf(request: LedgerRequest): readonly Moment[] {
  const { status, latency, settlement, stream } = request
  const received = Date.parse(request.created_at)
  const since = (instant: string | null) => (instant === null ? null : Math.max(0, Date.parse(instant) - received))
  if (status === 'refused')
    return [
      { name: 'Received', afterMs: 0 },
      { name: 'Refused', afterMs: since(request.ended_at) ?? 0 },
    ]
  const ended = latency.total_ms ?? since(request.ended_at)
  const moments: Moment[] = [{ name: 'Received, quoted and held', afterMs: 0 }]
  // A request that ended without output waits for nothing.
  if (status === 'held' || latency.first_token_ms !== null)
    moments.push({ name: 'First token', afterMs: latency.first_token_ms })
  if (status === 'held') return [...moments, { name: stream ? 'Last token' : 'Answer', afterMs: null }]
  moments.push({ name: endings[status], afterMs: ended })
  if (BigInt(request.charged_atomic) === 0n) return [...moments, { name: 'Hold released', afterMs: ended }]
  moments.push({ name: 'Charged; the rest was released', afterMs: ended })
  if (settlement.state === 'prepaid') return moments
  const settledMs = settlement.state === 'completed' ? since(settlement.changed_at) : null
  return [...moments, { name: 'Settled on chain', afterMs: settledMs }]
}

const endings = { succeeded: 'Last token', failed: 'Failed', cancelled: 'Client disconnected', held: '', refused: '' }
