import type { Deposit } from '../../api/shapes.ts'
import { atomic } from '../../money/format.ts'
import type { Chain } from './wallet-transfer.ts'

const usualMsMax = 60_000

/** The reason why a deposit is not credited yet; undefined where no explanation is needed. */
export function whyNotYet(
  {
    state,
    amount_atomic,
    waits_until,
    created_at,
  }: Pick<Deposit, 'state' | 'amount_atomic' | 'waits_until' | 'created_at'>,
  chain: Pick<Chain, 'deposit_min' | 'deposit_min_atomic'> | null,
  nowMs: number,
): string | undefined {
  if (state === 'credited' || state === 'failed') return undefined
  if (state === 'seen' && chain !== null && atomic(amount_atomic) < atomic(chain.deposit_min_atomic))
    return `Less than ${chain.deposit_min} USDC: it will be credited once your deposits add up to that.`
  const waitMs = waits_until === null ? 0 : Date.parse(waits_until) - nowMs
  if (waitMs > 0) {
    const minutes = Math.ceil(waitMs / 60_000)
    return `Deposits below 1 USDC are credited together, at most once every 10 minutes; this one in about ${minutes} min. Deposits of 1 USDC or more do not wait.`
  }
  if (nowMs - Date.parse(created_at) > usualMsMax)
    return 'This is taking longer than usual. It will be credited as soon as it reaches the gateway.'
  return undefined
}
