import { type Config, InvalidConfigError } from './config.ts'

/** Places on the path of money where a crash has an outcome of its own, in the order in which a request passes them. */
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

/** The same for the settlement process: each between two steps of a payment, a deposit or a withdrawal. */
export const settlementFailpointNames = [
  'after_sign',
  'after_submit',
  'after_sweep_planned',
  'before_sweep_broadcast',
  'after_sweep_broadcast',
  'before_credit',
  'after_credit',
  'before_return',
  'after_return',
  'before_withdraw',
  'after_withdraw',
  'before_payout',
] as const

export type SettlementFailpointName = (typeof settlementFailpointNames)[number]
export type SettlementFailpoint = (name: SettlementFailpointName) => void

export type FailpointName = (typeof failpointNames)[number]

/** Called where the process passes such a place. */
export type Failpoint = (name: FailpointName) => void

/** What runs in production: nothing happens anywhere. */
export const noFailpoint: Failpoint = () => {}

/** Ends this process when the configured place is reached for the n-th time, as suddenly as a power cut would. */
export function armFailpoint(armed: Config['failpoint']): Failpoint {
  if (armed === undefined) return noFailpoint
  if (![...failpointNames, ...settlementFailpointNames].includes(armed.name as FailpointName)) {
    throw new UnknownFailpointError(armed.name)
  }
  return arm(armed)
}

/** In the settlement process. Names of places on the request's path mean nothing there. */
export function armSettlementFailpoint(armed: Config['failpoint']): SettlementFailpoint {
  return armed === undefined ? () => {} : arm(armed)
}

function arm(armed: NonNullable<Config['failpoint']>): (name: string) => void {
  let reached = 0
  return (name) => {
    if (name !== armed.name) return
    reached += 1
    if (reached === armed.reach) process.kill(process.pid, 'SIGKILL')
  }
}

class UnknownFailpointError extends InvalidConfigError {
  constructor(name: string) {
    super(`FAILPOINT must be one of ${[...failpointNames, ...settlementFailpointNames].join(', ')}, got "${name}".`)
  }
}
