import { stopSignals } from '../process/stop-signals.ts'

/** How the operator asked this process to stop. */
export type StopSignals = {
  /** Aborted by the first signal: stop in good order. */
  readonly stop: AbortSignal
  /** Aborted by the second signal: stop now, but still in good order. */
  readonly hurry: AbortSignal
}

/** The exit code of a command that was interrupted. */
export const interruptedCode = 130

// One Ctrl-C or one `kill -- -PGID` reaches this process several times: from the terminal, from our wrapper, from npm.
const duplicateMsMax = 1_000

/**
 * Listens for the signals that stop a process. The handlers stay for its whole life: without one, a later signal would kill the
 * process and orphan its children. Call it before anything is started.
 */
export function watchStopSignals(now: () => number = () => performance.now()): StopSignals {
  const stop = new AbortController()
  const hurry = new AbortController()
  let countedMs = Number.NEGATIVE_INFINITY
  const onSignal = () => {
    if (now() - countedMs < duplicateMsMax) return
    countedMs = now()
    if (stop.signal.aborted) hurry.abort()
    else stop.abort()
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
  // The wrapper was killed with SIGKILL, which it cannot forward. Without this the service would be orphaned.
  process.on('disconnect', onSignal)
  // Listening must not keep a process alive that has nothing else to do.
  process.channel?.unref()
  // A closed terminal, or a pipe without a reader, must not end the process either.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  return { stop: stop.signal, hurry: hurry.signal }
}

/** For a command that prints until it is stopped. Aborted by a signal, or when the reader of its output has exited, as in `| head`. */
export function untilStopped(): AbortSignal {
  const stop = new AbortController()
  for (const signal of stopSignals) process.once(signal, () => stop.abort())
  process.stdout.once('error', () => stop.abort())
  return stop.signal
}

/** Resolves when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined)
    else signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
}
