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

const blockedChecks = 10

/**
 * Disconnects the client when for `blockedMsMax` (or up to a tenth longer) no byte of the answer leaves, until the answer is sent or the
 * returned function is called. Node's socket timeout does not serve for this: it restarts with every byte that the client sends.
 */
export function disconnectWhenBlocked(outgoing: ServerResponse, blockedMsMax: number): () => void {
  const { socket } = outgoing.req
  let sent = sentBytes(outgoing)
  let checksWithoutByte = 0
  const stop = () => {
    clearInterval(timer)
    outgoing.off('finish', stop)
    outgoing.off('close', stop)
  }
  const timer = setInterval(() => {
    const before = sent
    sent = sentBytes(outgoing)
    checksWithoutByte = sent !== undefined && sent === before ? checksWithoutByte + 1 : 0
    if (checksWithoutByte === blockedChecks) socket.destroy()
    // A pipelined answer whose turn has not come gets no event.
    if (socket.destroyed) stop()
  }, blockedMsMax / blockedChecks).unref()
  outgoing.once('finish', stop)
  outgoing.once('close', stop)
  return stop
}

/** Bytes that the kernel has taken of the connection's answers. Undefined while a pipelined answer waits for the one before it. */
function sentBytes({ socket }: ServerResponse): number | undefined {
  // Node's own timeout reads the same: `bytesWritten` of the socket counts what waits, and `writableLength` only shrinks by whole writes.
  const handle = (socket as { readonly _handle?: Handle | null } | null)?._handle
  return handle ? handle.bytesWritten - handle.writeQueueSize : undefined
}

type Handle = { readonly bytesWritten: number; readonly writeQueueSize: number }

/** Sends the last part of an answer. */
export function sendLast(outgoing: ServerResponse, text: string, blockedMsMax: number): void {
  if (text.length < outgoing.writableHighWaterMark) outgoing.end(text)
  // `end` only when the text fits into the socket: a closing server destroys connections with an ended answer, read or not.
  else if (outgoing.write(text)) outgoing.end()
  else outgoing.once('drain', () => outgoing.end())
  // The kernel usually takes all of it immediately. A pipelined answer has no socket until its turn.
  if (outgoing.socket === null || outgoing.socket.writableLength > 0) disconnectWhenBlocked(outgoing, blockedMsMax)
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
