/**
 * Runs work with a timeout: the signal is aborted after `ms`. For frequent calls: `AbortSignal.timeout` keeps its timer after the
 * work has ended, and creates an error with a stack trace for each call.
 */
export async function within<Result>(ms: number, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(new Error(`timed out after ${ms} ms`)), ms)
  try {
    return await work(deadline.signal)
  } finally {
    clearTimeout(timer)
  }
}
