import type { ServerResponse } from 'node:http'
import type { AnswerEnd, AttemptHead } from '../chat/recording.ts'
import { type ErrorContext, errorResponse } from '../http/error-response.ts'
import { sendJson } from '../http/send.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import { digits } from '../ledger/request-id.ts'
import { fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import { BufferedAnswer } from './buffered-answer.ts'
import {
  type CompletionHead,
  type Cost,
  completionBody,
  createChunkRenderer,
  createMessageAssembler,
} from './chat-chunks.ts'
import { EventStream } from './event-stream.ts'

/** One answer to one client, streamed or buffered: events as they arrive, then the end or an error. */
export type ChatAnswer = {
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
  /** `headers` are sent if the headers were not sent yet. */
  succeed(end: AnswerEnd, headers?: Readonly<Record<string, string>>): void
  /** `charged`: rounds and searches before the failure; default: nothing. */
  fail(error: unknown, charged?: Usdc): void
  /** The client has disconnected: nothing more is sent. */
  abandon(): void
}

export type AnswerOptions = ErrorContext & {
  readonly headers: Readonly<Record<string, string>>
  readonly streamKeepaliveMs: number
  readonly keepaliveAfterMs: number
  readonly blockedMsMax: number
}

export type AnswerForm = { readonly stream: boolean; readonly includeUsage: boolean }

export function openAnswer(
  head: AttemptHead,
  form: AnswerForm,
  outgoing: ServerResponse,
  options: AnswerOptions,
): ChatAnswer {
  const held = { ...options, headers: { ...options.headers, 'x-router-held-usdc': head.held.toString() } }
  return form.stream ? streamedAnswer(head, form, outgoing, held) : bufferedAnswer(head, outgoing, held)
}

function streamedAnswer(
  head: AttemptHead,
  { includeUsage }: AnswerForm,
  outgoing: ServerResponse,
  options: AnswerOptions,
): ChatAnswer {
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
      if (stream.committed) stream.end(renderer.error(response.body))
      else {
        stream.abandon()
        sendJson(outgoing, response.status, response.body, { ...options.headers, ...response.headers })
      }
    },
    abandon: () => stream.abandon(),
  }
}

function bufferedAnswer(head: AttemptHead, outgoing: ServerResponse, options: AnswerOptions): ChatAnswer {
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
      answer.end(response.status, response.body, { ...response.headers, 'x-router-charged-usdc': charged.toString() })
    },
    abandon: () => answer.abandon(),
  }
}

/** The completion's id has the same digits as the request id; its time comes from the ledger. */
function completionHead({ requestId, createdAt, model }: AttemptHead): CompletionHead {
  return { id: `chatcmpl-${digits(requestId)}`, created: Math.floor(createdAt.getTime() / 1000), model }
}

function costOf({ charged, searchCost, inputCost }: AnswerEnd): Cost {
  return { prompt: inputCost, completion: fromAtomic(charged - searchCost - inputCost), search: searchCost }
}
