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

export type FailpointName = (typeof failpointNames)[number]

/** Called where the process passes such a place. */
export type Failpoint = (name: FailpointName) => void

/** What runs in production: nothing happens anywhere. */
export const noFailpoint: Failpoint = () => {}

/** Ends this process when the configured place is reached for the n-th time, as suddenly as a power cut would. */
export function armFailpoint(armed: Config['failpoint']): Failpoint {
  if (armed === undefined) return noFailpoint
  if (!failpointNames.includes(armed.name as FailpointName)) throw new UnknownFailpointError(armed.name)
  let reached = 0
  return (name) => {
    if (name !== armed.name) return
    reached += 1
    if (reached === armed.reach) process.kill(process.pid, 'SIGKILL')
  }
}

class UnknownFailpointError extends InvalidConfigError {
  constructor(name: string) {
    super(`FAILPOINT must be one of ${failpointNames.join(', ')}, got "${name}".`)
  }
}
