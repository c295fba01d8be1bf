import type { ServerResponse } from 'node:http'

/** Browsers must not guess a type: customers' text inside JSON could pass as a page of this site. */
export const asDeclared = { 'x-content-type-options': 'nosniff' }

/** For every response, errors included. */
export function idHeaders(requestId: string): Record<string, string> {
  return {
    'x-router-request-id': requestId,
    // The OpenAI SDKs read this one.
    'x-request-id': requestId,
    ...asDeclared,
  }
}

/** For every response below /v1, errors included. */
export function v1Headers(requestId: string): Record<string, string> {
  return {
    ...idHeaders(requestId),
    'access-control-allow-origin': '*',
    'access-control-expose-headers': exposed,
  }
}

// SDKs in web pages see only exposed headers. Without `x-should-retry` they would retry permanent errors.
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
 * Disconnects a client that reads nothing of the end of an answer for `blockedMsMax`: Node has no timeout for this, and would keep the
 * rest of the answer in memory.
 */
export function disconnectWhenBlocked(outgoing: ServerResponse, blockedMsMax: number): void {
  // The socket's timeout restarts with every byte that is sent. When it fires, Node destroys the socket.
  outgoing.setTimeout(blockedMsMax)
  // Before Node's own listener, which starts the keep-alive timeout or the next pipelined answer.
  outgoing.prependOnceListener('finish', () => outgoing.setTimeout(0))
}

/** Sends the last part of an answer. */
export function sendLast(outgoing: ServerResponse, text: string, blockedMsMax: number): void {
  disconnectWhenBlocked(outgoing, blockedMsMax)
  if (text.length < outgoing.writableHighWaterMark) outgoing.end(text)
  // `end` only when the text fits into the socket: a closing server destroys connections with an ended answer, read or not.
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

/** Answers a request before its body was read completely. Closes the connection when `discard` has read the rest. */
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
