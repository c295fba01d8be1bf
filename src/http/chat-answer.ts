import type { ServerResponse } from 'node:http'
import type { Order } from '../chat/admit.ts'
import type { Completion } from '../chat/complete-chat.ts'
import {
  type CompletionHead,
  type Cost,
  completionBody,
  createChunkRenderer,
  createMessageAssembler,
} from '../inference/chat-chunks.ts'
import type { ChatEvent, FinishReason } from '../inference/responses-events.ts'
import type { End, EndCall } from '../ledger/holds.ts'
import { digits } from '../ledger/request-id.ts'
import { fromAtomic, min } from '../money/usdc.ts'
import { BufferedAnswer } from './buffered-answer.ts'
import { type ErrorContext, errorResponse } from './error-response.ts'
import { EventStream } from './event-stream.ts'
import { sendJson } from './send.ts'

/** One answer to one client: events while they come, then the end or the error, whichever form was asked for. */
export type ChatAnswer = {
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
  succeed(completion: Completion): void
  fail(error: unknown): void
  /** The client has left, perhaps before there was an answer to leave: nothing more is sent. */
  abandon(): void
}

export type AnswerOptions = ErrorContext & {
  readonly headers: Readonly<Record<string, string>>
  readonly streamKeepaliveMs: number
  readonly keepaliveAfterMs: number
  readonly blockedMsMax: number
}

export function openAnswer(order: Order, outgoing: ServerResponse, options: AnswerOptions): ChatAnswer {
  const held = { ...options.headers, 'x-router-held-usdc': order.hold.quote.toString() }
  return order.chat.stream
    ? streamedAnswer(order, outgoing, { ...options, headers: held })
    : bufferedAnswer(order, outgoing, { ...options, headers: held })
}

function streamedAnswer(order: Order, outgoing: ServerResponse, options: AnswerOptions): ChatAnswer {
  const renderer = createChunkRenderer({ ...headOf(order), includeUsage: order.chat.includeUsage })
  const stream = new EventStream(outgoing, renderer, {
    headers: options.headers,
    silenceMsMax: options.streamKeepaliveMs,
    blockedMsMax: options.blockedMsMax,
  })
  return {
    deliver: (events) => stream.deliver(events),
    succeed({ charge, end }) {
      const { finish, usage, done } = renderer
      stream.end(finish(charge.finishReason as FinishReason) + usage(charge.usage!, costOf(charge, end)) + done)
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

function bufferedAnswer(order: Order, outgoing: ServerResponse, options: AnswerOptions): ChatAnswer {
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
    succeed({ charge, end }) {
      const body = completionBody({
        ...headOf(order),
        message: message.finish(),
        finishReason: charge.finishReason as FinishReason,
        usage: charge.usage!,
        cost: costOf(charge, end),
      })
      answer.end(200, body, { 'x-router-charged-usdc': end.charged.toString() })
    },
    fail(error) {
      const response = errorResponse(error, options)
      answer.end(response.status, response.body, { ...response.headers, 'x-router-charged-usdc': '0' })
    },
    abandon: () => answer.abandon(),
  }
}

/** The completion's id has the same digits as the request's, and its time is the ledger's. */
function headOf({ requestId, hold, model }: Order): CompletionHead {
  return { id: `chatcmpl-${digits(requestId)}`, created: Math.floor(hold.createdAt.getTime() / 1000), model: model.id }
}

/** What the ledger says, which is not what was asked of it when another node had ended the request before. */
function costOf({ searchCost }: EndCall, { charged }: End): Cost {
  const search = min(searchCost, charged)
  return { inference: fromAtomic(charged - search), search }
}
