import type { Config } from '../config/config.ts'
import type { Log } from '../process/log.ts'

/** Passed to every step of a start. */
export type StartContext = {
  readonly config: Config
  readonly log: Log
  /** Each step defers the cleanup of what it started. The service stops in reverse order of its start. */
  readonly stack: AsyncDisposableStack
  readonly onProgress: (line: string) => void
  /** Aborted when the start is cancelled. */
  readonly signal: AbortSignal | undefined
}
