import type { Config } from '../config/config.ts'
import { InvalidConfigError } from '../config/setting-reader.ts'

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

/** The same for the settlement process: each between two steps of a deposit, a payment, a withdrawal or a payout. */
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
] as const

/** All of them, one in each life of the process. */
export const everySettlementFailpoint = 'every_settlement_step'

export type SettlementFailpointName = (typeof settlementFailpointNames)[number]
export type SettlementFailpoint = (name: SettlementFailpointName) => void

const allNames: readonly string[] = [...failpointNames, ...settlementFailpointNames, everySettlementFailpoint]

export type FailpointName = (typeof failpointNames)[number]

/** Called where the process passes such a place. */
export type Failpoint = (name: FailpointName) => void

/** What runs in production: nothing happens anywhere. */
export const noFailpoint: Failpoint = () => {}

/** Ends this process when the configured place is reached for the n-th time, as suddenly as a power cut would. */
export function armFailpoint(armed: Config['failpoint']): Failpoint {
  if (armed === undefined) return noFailpoint
  if (!allNames.includes(armed.name)) throw new UnknownFailpointError(armed.name)
  return arm(armed)
}

/** In the settlement process. Names of places on the request's path mean nothing there. */
export function armSettlementFailpoint(armed: Config['failpoint']): SettlementFailpoint {
  return armed === undefined ? () => {} : arm(armed)
}

/** Where the settlement process dies in its n-th life, from 0 on. A test that names one place means once. */
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

class UnknownFailpointError extends InvalidConfigError {
  constructor(name: string) {
    super(`FAILPOINT must be one of ${allNames.join(', ')}, got "${name}".`)
  }
}
