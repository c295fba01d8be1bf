import type { ServerResponse } from 'node:http'
import type { AnswerReader } from '../chat/answer.ts'
import type { AnswerHead } from '../chat/log.ts'
import type { ErrorContext } from '../http/error-response.ts'
import { digits } from '../ledger/request-id.ts'
import { BodyReader } from './body-reader.ts'
import type { CompletionHead } from './chat-chunks.ts'
import { StreamReader } from './stream-reader.ts'

export type ReaderOptions = ErrorContext & {
  readonly headers: Readonly<Record<string, string>>
  /** After this much silence a stream gets a comment line: proxies close silent connections. */
  readonly streamKeepaliveMs: number
  /** After this time the headers of a body are sent, and white space keeps its connection alive. */
  readonly keepaliveAfterMs: number
  /** A client that reads nothing for this long counts as disconnected. */
  readonly blockedMsMax: number
}

export type ReaderForm = { readonly stream: boolean; readonly includeUsage: boolean }

/** Writes an answer to a client, streamed or buffered. */
export function openReader(
  head: AnswerHead,
  form: ReaderForm,
  outgoing: ServerResponse,
  options: ReaderOptions,
): AnswerReader {
  const held = { ...options, headers: { ...options.headers, 'x-router-held-usdc': head.held.toString() } }
  const completion = completionHead(head)
  return form.stream
    ? new StreamReader(outgoing, { ...completion, includeUsage: form.includeUsage }, held)
    : new BodyReader(outgoing, completion, held)
}

/** The completion's id has the same digits as the request id; its time comes from the ledger. */
function completionHead({ requestId, createdAt, model }: AnswerHead): CompletionHead {
  return { id: `chatcmpl-${digits(requestId)}`, created: Math.floor(createdAt.getTime() / 1000), model }
}
