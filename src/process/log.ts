import { join } from 'node:path'
import pino, { type DestinationStream } from 'pino'
import type { LogLevel } from '../config/config.ts'
import { ServiceError, withoutKeys } from '../errors.ts'
import { openLogFile } from './log-file.ts'

/** What the service may write down. Prompts, answers and keys are not among it. */
export type Log = Pick<pino.Logger, 'debug' | 'info' | 'warn' | 'error'> & { flush(): void }

const fileLimits = { bytesMax: 20 * 1024 * 1024, filesMax: 5 }

/** JSON lines: to standard error, or, where a person sits before a terminal, to a file in the data folder. */
export function createLog(level: LogLevel, dataDir: string): Log {
  const sink = process.stderr.isTTY ? openLogFile(join(dataDir, 'penny.log'), fileLimits) : standardError()
  const logger = pino(
    {
      level,
      base: null,
      redact: ['authorization', 'cookie', 'api_key', 'headers.authorization', 'headers.cookie'],
      serializers: { err: describeError, fault: describeFault },
    },
    sink,
  )
  return logger
}

function standardError(): DestinationStream {
  const sink = pino.destination({ dest: 2, sync: false })
  // A reader that has gone: what cannot be written is lost, and nothing else. Unheard, it would end the process.
  sink.on('error', () => {})
  return sink
}

/** An error of a tool: what the tool was asked for is the customer's word, and its message may repeat it. */
function describeFault(error: unknown): object {
  const { message: _, cause: __, ...rest } = describeError(error) as Record<string, unknown>
  return rest
}

const causesMax = 3

/**
 * What of an error is written down: its kind, its code, where it came from. Its message only where it is of our own making or
 * the system's. A refusal's message is for its customer and may repeat what the customer sent; the message of a failed parse
 * quotes what it could not read; details of a database error hold whole rows; a node's error repeats its address, with the key.
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
