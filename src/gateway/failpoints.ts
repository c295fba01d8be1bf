/** Places where a crash has an outcome of its own, in the order in which a payment passes them. */
export const failpointNames = [
  'transfer_stored',
  'call_stored',
  'call_sent',
  'receipt_seen',
  'events_applied',
  'call_resolved',
] as const

export type FailpointName = (typeof failpointNames)[number]

/** Called where the process passes such a place. */
export type Failpoint = (name: FailpointName) => void

export const noFailpoint: Failpoint = () => {}

/** Ends this process when the place is reached for the n-th time, as suddenly as a power cut would. */
export function armFailpoint(armed: { readonly name: FailpointName; readonly reach: number } | undefined): Failpoint {
  if (armed === undefined) return noFailpoint
  let reached = 0
  return (name) => {
    if (name === armed.name) reached += 1
    if (reached === armed.reach) process.kill(process.pid, 'SIGKILL')
  }
}
