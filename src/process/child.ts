import { constants, setPriority } from 'node:os'
import { OperatorError } from '../errors.ts'
import { stopSignals } from './stop-signals.ts'

export type ChildOptions<Settings, Ready> = {
  readonly title: string
  /** Lowers the CPU priority: customers wait for the web process and for PostgreSQL, not for this one. */
  readonly isInBackground: boolean
  /** Its result is sent to the service and reports that this process is ready. */
  readonly start: (settings: Settings) => Promise<Ready>
  /** Finishes the work in progress before the process exits. */
  readonly stop?: (cause: StopCause) => Promise<void>
}

/** `requested`: by the service. `orphaned`: the service has died. */
export type StopCause = 'requested' | 'orphaned'

/** Sent over the channel instead of a ready message when the child cannot start with its settings. */
export type ChildRefusal = { readonly refused: string }

/** The supervisor sends it to a ready child, and the child echoes it. */
export const heartbeat = 'heartbeat'

/** The supervisor sends it before it closes the channel. A channel that closes without it means that the service has died. */
export const stopMessage = 'stop'

/** Runs a supervised process: it receives its settings, starts, and reports once that it is ready. */
export function runAsChild<Settings, Ready>(options: ChildOptions<Settings, Ready>): void {
  const { title, isInBackground, start, stop } = options
  let stopCause: StopCause = 'orphaned'
  process.title = title
  if (isInBackground) setPriority(constants.priority.PRIORITY_BELOW_NORMAL)
  // The service alone decides when its child exits: by closing the channel, or by dying. A signal to a terminal, a process group or
  // a control group must not end a child that requests in flight still need.
  for (const signal of stopSignals) process.on(signal, () => {})
  process.on('disconnect', async () => {
    await stop?.(stopCause).catch((error: unknown) => console.error(error))
    process.exit(0)
  })
  process.once('message', (settings: Settings) => {
    start(settings).then((ready) => process.send?.(ready), leave)
    process.on('message', (message) => {
      if (message === stopMessage) stopCause = 'requested'
      if (message === heartbeat && process.connected) process.send?.(heartbeat, undefined, {}, () => {})
    })
  })
}

/** The parent shows refusals. Any other error is a bug and shown here. */
function leave(error: unknown): void {
  if (error instanceof OperatorError && process.connected) {
    process.send?.({ refused: error.message } satisfies ChildRefusal, undefined, {}, () => process.exit(1))
    return
  }
  console.error(error)
  process.exit(1)
}
