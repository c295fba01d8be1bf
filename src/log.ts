import { join } from 'node:path'
import pino from 'pino'
import type { LogLevel } from './config.ts'

/** What the service may write down. Prompts, answers and keys are not among it. */
export type Log = Pick<pino.Logger, 'debug' | 'info' | 'warn' | 'error'> & { flush(): void }

/** JSON lines: to standard error, or, where a person sits before a terminal, to a file in the data folder. */
export function createLog(level: LogLevel, dataDir: string): Log {
  const destination = process.stderr.isTTY ? join(dataDir, 'penny.log') : 2
  const logger = pino(
    { level, base: null, redact: ['authorization', 'cookie', 'api_key', 'headers.authorization', 'headers.cookie'] },
    pino.destination({ dest: destination, sync: false, mode: 0o600 }),
  )
  return logger
}
