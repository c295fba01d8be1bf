import type { Config } from '../config/config.ts'
import { InvalidConfigError } from '../config/setting.ts'

/** Points on the path of money where a crash has a distinct outcome, in the order in which a request reaches them. */
export const failpointNames = [
  'after_parse',
  'after_quote',
  'before_hold_commit',
  'after_hold_commit',
  'before_upstream_write',
  'on_chunk',
  'after_checkpoint',
  'before_end_commit',
  'after_end_commit',
  'before_last_frame',
] as const

/** The same where a wallet pays its request over x402. */
export const x402FailpointNames = [
  'after_x402_claim',
  'after_x402_settle',
  'before_x402_commit',
  'after_x402_commit',
] as const

/** The same for the delivery of a webhook, in this order. */
export const webhookFailpointNames = [
  'before_webhook_send',
  'after_webhook_send',
  'before_webhook_commit',
  'after_webhook_commit',
] as const

/** The same for the settlement process. Each is between two steps of a deposit, a payment, a withdrawal or a payout. */
export const settlementFailpointNames = [
  'after_sweep_planned',
  'before_sweep_broadcast',
  'after_sweep_broadcast',
  'before_credit',
  'after_credit',
  'after_payment_made',
  'before_roots',
  'after_sign',
  'before_submit',
  'after_submit',
  'before_withdraw',
  'after_withdraw',
  'before_payout',
  'after_payout',
  'before_refund',
  'after_refund',
] as const

/** Kills the settlement process at every point in turn, one per start of the process. */
export const everySettlementFailpoint = 'every_settlement_step'

export type SettlementFailpointName = (typeof settlementFailpointNames)[number]
export type SettlementFailpoint = (name: SettlementFailpointName) => void

const allNames: readonly string[] = [
  ...failpointNames,
  ...x402FailpointNames,
  ...webhookFailpointNames,
  ...settlementFailpointNames,
  everySettlementFailpoint,
]

export type FailpointName = (typeof failpointNames)[number]
export type X402FailpointName = (typeof x402FailpointNames)[number]
export type WebhookFailpointName = (typeof webhookFailpointNames)[number]

/** Called when the process reaches the named point. */
export type Failpoint = (name: FailpointName | X402FailpointName | WebhookFailpointName) => void

/** Used in production: does nothing. */
export const noFailpoint: Failpoint = () => {}

/** Kills this process when it reaches the configured point for the n-th time, as abruptly as a power failure. */
export function armFailpoint(armed: Config['failpoint']): Failpoint {
  if (armed === undefined) return noFailpoint
  if (!allNames.includes(armed.name))
    throw new InvalidConfigError(`FAILPOINT must be one of ${allNames.join(', ')}, got "${armed.name}".`)
  return arm(armed)
}

/** For the settlement process. It ignores the names of points on the request path. */
export function armSettlementFailpoint(armed: Config['failpoint']): SettlementFailpoint {
  return armed === undefined ? () => {} : arm(armed)
}

/**
 * The failpoint for the n-th start of the settlement process, counted from 0. A single named point fires in the first start only.
 */
export function settlementFailpointOf(armed: Config['failpoint'], life: number): Config['failpoint'] {
  if (armed?.name !== everySettlementFailpoint) return life === 0 ? armed : undefined
  const name = settlementFailpointNames[life]
  return name && { name, reach: 1 }
}

function arm(armed: NonNullable<Config['failpoint']>): (name: string) => void {
  let reached = 0
  return (name) => {
    if (name !== armed.name) return
    reached += 1
    if (reached === armed.reach) process.kill(process.pid, 'SIGKILL')
  }
}
