import type { IncomingMessage } from 'node:http'
import type { RetryMarks } from '../chat/retries.ts'

type RetryHeaders = Pick<RetryMarks, 'idempotencyKey' | 'retryCount'>

export function readRetryHeaders({ headers }: Pick<IncomingMessage, 'headers'>): RetryHeaders {
  const key = headers['idempotency-key']
  const count = headers['x-stainless-retry-count']
  return {
    idempotencyKey: typeof key === 'string' && key !== '' ? key : undefined,
    retryCount: typeof count === 'string' && /^\d{1,3}$/.test(count) ? Number(count) : undefined,
  }
}

/** True when the request may get the answer of an earlier one. */
export function mayReplay({ idempotencyKey, retryCount = 0 }: RetryHeaders): boolean {
  return idempotencyKey !== undefined || retryCount > 0
}
