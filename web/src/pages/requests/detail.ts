import type { LedgerRequest } from '../../api/shapes.ts'
import { formatCount } from '../../money/format.ts'
import { formatMs } from '../../ui/format-time.ts'

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
