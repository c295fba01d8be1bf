import pino from 'pino'
import type { LogLevel } from '../config/config.ts'
import { ServiceError, withoutKeys } from '../errors.ts'

/** The log. It must never receive prompts, answers or keys. */
export type Log = Pick<pino.Logger, 'debug' | 'info' | 'warn' | 'error'> & { flush(): void }

/** Writes JSON lines to standard error. What starts the process keeps and rotates them: systemd, a container, a shell. */
export function createLog(level: LogLevel): Log {
  const sink = pino.destination({ dest: 2, sync: false })
  // The reader of the pipe has exited: drop the line and carry on. Without a listener the error event would end the process.
  sink.on('error', () => {})
  return pino(
    {
      level,
      base: null,
      redact: ['authorization', 'cookie', 'api_key', 'headers.authorization', 'headers.cookie'],
      serializers: { err: describeError, fault: describeFault },
    },
    sink,
  )
}

/** For an error of a tool. Its message may quote the tool's input, which is customer text. */
function describeFault(error: unknown): object {
  const { message: _, cause: __, ...rest } = describeError(error) as Record<string, unknown>
  return rest
}

const causesMax = 3

/**
 * The loggable part of an error: type, code and stack; the message only if our code or the system wrote it. Left out, because they
 * leak: the message of a refusal (may repeat what the customer sent), the message of a parse error (quotes its input), the details
 * of a database error (contain whole rows), the URL in a chain node's error (contains the API key).
 */
function describeError(error: unknown, depth = 0): object {
  if (!(error instanceof Error)) return { type: typeof error }
  const { code, upstreamStatus, cause } = error as Error & { code?: unknown; upstreamStatus?: unknown; cause?: unknown }
  const quotes = error instanceof ServiceError || error instanceof SyntaxError
  const frames = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line))
  return {
    type: error.name,
    ...(typeof code === 'string' && { code }),
    ...(typeof upstreamStatus === 'number' && { upstream_status: upstreamStatus }),
    ...(!quotes && { message: withoutKeys(error.message) }),
    stack: frames.map((line) => line.trim()).join('\n'),
    ...(cause !== undefined && depth < causesMax && { cause: describeError(cause, depth + 1) }),
  }
}
