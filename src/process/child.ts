import { constants, setPriority } from 'node:os'
import { OperatorError } from '../errors.ts'

export type ChildOptions<Settings, Ready> = {
  readonly title: string
  /** Customers wait for the web process and for PostgreSQL: this one may wait behind them. */
  readonly isInBackground: boolean
  /** What it resolves with tells the service that this process is ready. */
  readonly start: (settings: Settings) => Promise<Ready>
}

/** What a child process says over its channel instead of being ready, when it cannot start as it was asked to. */
export type ChildRefusal = { readonly refused: string }

/** The supervisor sends it to a ready child, which sends it back. */
export const heartbeat = 'heartbeat'

/** The life of a process that the supervisor starts: it is sent its settings, and answers once when it is ready. */
export function runAsChild<Settings, Ready>({ title, isInBackground, start }: ChildOptions<Settings, Ready>): void {
  process.title = title
  if (isInBackground) setPriority(constants.priority.PRIORITY_BELOW_NORMAL)
  // The service decides when its child goes: by closing the channel, or by dying. A signal to all processes of a terminal, a
  // process group or a control group must not end a child that requests under way still need.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {})
  process.on('disconnect', () => process.exit(0))
  process.once('message', (settings: Settings) => {
    start(settings).then((ready) => process.send?.(ready), leave)
    process.on('message', (message) => {
      if (message === heartbeat && process.connected) process.send?.(heartbeat, undefined, {}, () => {})
    })
  })
}

/** The parent shows a refusal; everything else is a bug and shown here. */
function leave(error: unknown): void {
  if (error instanceof OperatorError && process.connected) {
    process.send?.({ refused: error.message } satisfies ChildRefusal, undefined, {}, () => process.exit(1))
    return
  }
  console.error(error)
  process.exit(1)
}
