import type { ServerResponse } from 'node:http'

/** An answer is what its content type says: a customer's words in JSON must not be taken for a page of ours. */
export const asDeclared = { 'x-content-type-options': 'nosniff' }

/** On every answer, errors included. */
export function idHeaders(requestId: string): Record<string, string> {
  return {
    'x-router-request-id': requestId,
    // The name under which the OpenAI SDKs look for it.
    'x-request-id': requestId,
    ...asDeclared,
  }
}

/** On every answer below /v1, errors included. */
export function v1Headers(requestId: string): Record<string, string> {
  return {
    ...idHeaders(requestId),
    'access-control-allow-origin': '*',
    'access-control-expose-headers': exposed,
  }
}

// An SDK in a page retries by what it can read: without `x-should-retry` it would repeat what cannot be cured.
const exposed = [
  'x-router-request-id',
  'x-router-held-usdc',
  'x-router-charged-usdc',
  'x-request-id',
  'x-should-retry',
  'retry-after',
  'retry-after-ms',
  'idempotent-replayed',
  'payment-required',
  'payment-response',
].join(', ')

/**
 * Sends the last of an answer. A client that takes nothing of it for so long is cut off: Node waits for ever for its answer
 * to be fetched, and keeps what is left of it meanwhile.
 */
export function sendLast(outgoing: ServerResponse, text: string, blockedMsMax: number): void {
  outgoing.setTimeout(blockedMsMax)
  // Ahead of Node's own listener, which starts the clock of an idle connection, or lets the next answer in line begin.
  outgoing.prependOnceListener('finish', () => outgoing.setTimeout(0))
  if (text.length < outgoing.writableHighWaterMark) outgoing.end(text)
  // A server that is told to close destroys every connection whose answer has been ended, fetched or not.
  else if (outgoing.write(text)) outgoing.end()
  else outgoing.once('drain', () => outgoing.end())
}

export function sendJson(
  outgoing: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>>,
): void {
  writeJson(outgoing, status, body, headers)
  outgoing.end()
}

/** Answers a request whose body has not been read to its end. The connection is closed when `discard` has read the rest. */
export async function sendJsonEarly(
  outgoing: ServerResponse,
  { status, body, headers }: { status: number; body: object; headers: Readonly<Record<string, string>> },
  discard: () => Promise<void>,
): Promise<void> {
  writeJson(outgoing, status, body, { ...headers, connection: 'close' })
  await discard()
  outgoing.end()
}

function writeJson(
  outgoing: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>>,
): void {
  const text = JSON.stringify(body)
  outgoing.writeHead(status, {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    ...headers,
  })
  outgoing.write(text)
}
