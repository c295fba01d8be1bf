import type { ServerResponse } from 'node:http'
import type { AnswerReader } from '../chat/answer.ts'
import type { AnswerEnd, AnswerHead } from '../chat/log.ts'
import { type ErrorContext, errorResponse, isRepeatable } from '../http/error-response.ts'
import { sendJson } from '../http/send.ts'
import { digits } from '../ledger/request-id.ts'
import { fromAtomic, zero } from '../money/usdc.ts'
import { BufferedAnswer } from './buffered-answer.ts'
import {
  type CompletionHead,
  type Cost,
  completionBody,
  createChunkRenderer,
  createMessageAssembler,
} from './chat-chunks.ts'
import { EventStream } from './event-stream.ts'

export type ReaderOptions = ErrorContext & {
  readonly headers: Readonly<Record<string, string>>
  readonly streamKeepaliveMs: number
  readonly keepaliveAfterMs: number
  readonly blockedMsMax: number
}

export type ReaderForm = { readonly stream: boolean; readonly includeUsage: boolean }

export function openReader(
  head: AnswerHead,
  form: ReaderForm,
  outgoing: ServerResponse,
  options: ReaderOptions,
): AnswerReader {
  const held = { ...options, headers: { ...options.headers, 'x-router-held-usdc': head.held.toString() } }
  return form.stream ? streamReader(head, form, outgoing, held) : bufferReader(head, outgoing, held)
}

function streamReader(
  head: AnswerHead,
  { includeUsage }: ReaderForm,
  outgoing: ServerResponse,
  options: ReaderOptions,
): AnswerReader {
  const renderer = createChunkRenderer({ ...completionHead(head), includeUsage })
  const stream = new EventStream(outgoing, renderer, {
    headers: options.headers,
    silenceMsMax: options.streamKeepaliveMs,
    blockedMsMax: options.blockedMsMax,
  })
  return {
    deliver: (events) => stream.deliver(events),
    succeed(end) {
      const { finish, usage, done } = renderer
      stream.end(finish(end.finishReason) + usage(end.usage, costOf(end)) + done)
    },
    fail(error) {
      const response = errorResponse(error, options)
      if (stream.committed) {
        stream.end(renderer.error(response.body))
        return false
      }
      const isAdvised = isRepeatable(error) && !outgoing.destroyed
      stream.abandon()
      sendJson(outgoing, response.status, response.body, { ...options.headers, ...response.headers })
      return isAdvised
    },
    abandon: () => stream.abandon(),
  }
}

function bufferReader(head: AnswerHead, outgoing: ServerResponse, options: ReaderOptions): AnswerReader {
  const message = createMessageAssembler()
  const answer = new BufferedAnswer(outgoing, {
    headers: options.headers,
    keepaliveAfterMs: options.keepaliveAfterMs,
    keepaliveEveryMs: options.streamKeepaliveMs,
    blockedMsMax: options.blockedMsMax,
  })
  return {
    deliver(events) {
      message.add(events)
      return undefined
    },
    succeed(end, headers) {
      const { finishReason, usage } = end
      const body = completionBody({
        ...completionHead(head),
        message: message.finish(),
        finishReason,
        usage,
        cost: costOf(end),
      })
      answer.end(200, body, { 'x-router-charged-usdc': end.charged.toString(), ...headers })
    },
    fail(error, charged = zero) {
      const response = errorResponse(error, options)
      const isAdvised = isRepeatable(error) && !outgoing.headersSent && !outgoing.destroyed
      answer.end(response.status, response.body, { ...response.headers, 'x-router-charged-usdc': charged.toString() })
      return isAdvised
    },
    abandon: () => answer.abandon(),
  }
}

/** The completion's id has the same digits as the request id; its time comes from the ledger. */
function completionHead({ requestId, createdAt, model }: AnswerHead): CompletionHead {
  return { id: `chatcmpl-${digits(requestId)}`, created: Math.floor(createdAt.getTime() / 1000), model }
}

function costOf({ charged, searchCost, inputCost }: AnswerEnd): Cost {
  return { prompt: inputCost, completion: fromAtomic(charged - searchCost - inputCost), search: searchCost }
}
