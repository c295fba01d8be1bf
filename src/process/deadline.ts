/**
 * Does some work that must end within a time; the signal is aborted then. For calls that are made often: the timer of
 * `AbortSignal.timeout` runs on after the work has ended, and makes an error with a stack for each call.
 */
export async function within<Result>(ms: number, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(new DeadlineError(ms)), ms)
  try {
    return await work(deadline.signal)
  } finally {
    clearTimeout(timer)
  }
}

class DeadlineError extends Error {
  constructor(ms: number) {
    super(`no answer within ${ms} ms`)
    this.name = 'DeadlineError'
  }
}
