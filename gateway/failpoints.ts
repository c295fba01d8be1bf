/** Points where a crash has a distinct outcome, in the order in which a payment reaches them. */
export const failpointNames = [
  'transfer_stored',
  'call_stored',
  'call_sent',
  'receipt_seen',
  'events_applied',
  'call_resolved',
] as const

export type FailpointName = (typeof failpointNames)[number]

/** Called when the process reaches the named point. */
export type Failpoint = (name: FailpointName) => void

export const noFailpoint: Failpoint = () => {}

/** Kills this process when it reaches the point for the n-th time, as abruptly as a power failure. */
export function armFailpoint(armed: { readonly name: FailpointName; readonly reach: number } | undefined): Failpoint {
  if (armed === undefined) return noFailpoint
  let reached = 0
  return (name) => {
    if (name === armed.name) reached += 1
    if (reached === armed.reach) process.kill(process.pid, 'SIGKILL')
  }
}
