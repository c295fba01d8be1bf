import type { Config } from '../config/config.ts'
import type { Log } from '../process/log.ts'

/** What every step of a start is given. */
export type StartContext = {
  readonly config: Config
  readonly log: Log
  /** Each step defers here what stops what it started. The service stops in the opposite order of its start. */
  readonly stack: AsyncDisposableStack
  readonly onProgress: (line: string) => void
  /** Aborted when the start is no longer wanted. */
  readonly signal: AbortSignal | undefined
}
