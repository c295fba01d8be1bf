import type { ChargingParts } from '../../src/billing/charge.ts'
import { HiddenReasoning } from '../../src/billing/hidden-reasoning.ts'
import { quote } from '../../src/billing/quote.ts'
import type { AdmittedRequest } from '../../src/chat/admit.ts'
import type { FirstClient, ServingParts } from '../../src/chat/answer.ts'
import type { ChatEvent } from '../../src/inference/chat-events.ts'
import type { EndCall } from '../../src/ledger/hold-calls.ts'
import { createRequestId } from '../../src/ledger/request-id.ts'
import { RequestWatch } from '../../src/observe/request-watch.ts'
import { inputOf, toModelRequest } from '../../src/providers/model-request.ts'
import type { AnswerSink } from '../../src/providers/upstream-call.ts'

// One answer without a server and a ledger: what it is asked for, who it is for, and what its end would charge.

export const answeringModel = {
  id: 'm',
  contextLength: 400_000,
  maxOutputTokens: 64_000,
  inputPerMillion: 1_000_000n,
  outputPerMillion: 5_000_000n,
}

/** Counts words. */
export function wordCounter(): ChargingParts {
  return {
    countTokens: async (texts) => texts.join(' ').split(' ').filter(Boolean).length,
    hiddenReasoning: new HiddenReasoning(),
    onUncounted: (error) => {
      throw error
    },
    onRefusedUsage: (usage) => {
      throw new Error(`the usage was refused: ${JSON.stringify(usage)}`)
    },
  }
}

/** The parts of an answer, and the ends that it writes. `own` replaces some of them. */
export function answeringParts(own: object): { readonly parts: ServingParts; readonly ends: readonly EndCall[] } {
  const ends: EndCall[] = []
  const counter = wordCounter()
  const parts = {
    charging: counter,
    counting: counter,
    checkpoints: { watch: () => () => {} },
    observer: { ended() {}, lost() {} },
    openRequests: { begin: () => ({ [Symbol.dispose]() {} }) },
    failpoint() {},
    now: () => 0,
    onToolFault: (error: unknown) => {
      throw error
    },
    holds: {
      async end(call: EndCall) {
        ends.push(call)
        return { status: call.status, charged: call.charged }
      },
      extend: async () => 'extended',
      recordToolCall() {},
    },
    ...own,
  }
  return { parts: parts as unknown as ServingParts, ends }
}

/** A streamed request whose quote is held. */
export function heldRequest(own: Partial<AdmittedRequest> = {}, content = 'What is a penny?'): AdmittedRequest {
  const chat = {
    model: 'm',
    messages: [{ role: 'user', content: [content] }],
    stream: true,
    includeUsage: false,
    includeCost: false,
    maxTokens: 1_000,
    tools: [],
    toolChoice: 'auto',
    responseFormat: { type: 'text' },
    reasoningEffort: 'low',
  } as unknown as AdmittedRequest['chat']
  const requestId = createRequestId(0, 0)
  const requestOptions = { promptCacheKey: 'key' }
  const request = toModelRequest(chat, requestOptions)
  const quoted = quote(answeringModel, 1_000, 1_000)
  return {
    requestId,
    sharesOf: 'account',
    chat,
    model: answeringModel,
    offer: new Set(),
    requestOptions,
    request,
    input: inputOf(request),
    quote: quoted,
    searchMax: 0n,
    searchPerCall: 0n,
    hold: { requestId, payer: { accountId: 'account', partition: 0, keyId: 'key' }, quote: quoted.amount },
    watch: new RequestWatch(() => 0, undefined),
    ...own,
  } as unknown as AdmittedRequest
}

/** A client that keeps what it reads. */
export function readingClient(signal: AbortSignal, onEvent: (event: ChatEvent) => void = () => {}) {
  const events: ChatEvent[] = []
  const errors: unknown[] = []
  const client: FirstClient = {
    reader: {
      deliver(delivered) {
        events.push(...delivered)
        delivered.forEach(onEvent)
        return undefined
      },
      succeed() {},
      fail(error) {
        errors.push(error)
        return false
      },
      abandon() {},
    },
    signal,
    closed: () => new Promise(() => {}),
    onFailed() {},
    onError: (error) => errors.push(error),
  }
  return { client, events, errors }
}

/** A model that answers with these events, one read each. */
export function routerOf(...reads: readonly (readonly ChatEvent[])[]): object {
  const route = { provider: 'one', model: 'm', priority: 0, weight: 1, rates: undefined }
  return {
    ask({ sink }: { readonly sink: AnswerSink }) {
      queueMicrotask(() => {
        sink.onAccepted()
        for (const read of reads) void sink.onEvents(read)
      })
      return { route, stop() {} }
    },
  }
}
