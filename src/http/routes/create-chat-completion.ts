import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AdmissionParts, admit, type Order } from '../../chat/admit.ts'
import { type Audience, completeChat, type ServingParts } from '../../chat/complete-chat.ts'
import type { AnswerHead, Recording } from '../../chat/recording.ts'
import type { EarlierAttempt, OwnAttempt, Retries, RetryMarks } from '../../chat/retries.ts'
import { refuseUnavailable } from '../../chat/tool-offer.ts'
import { ServiceError } from '../../errors.ts'
import type { Failpoint } from '../../failpoints.ts'
import type { KeyFinder } from '../../identity/api-keys.ts'
import { type ModelDirectory, parseChatRequest } from '../../inference/chat-request.ts'
import { parseJsonBody } from '../../inference/json-body.ts'
import type { Payer } from '../../ledger/hold-calls.ts'
import type { Holds } from '../../ledger/holds.ts'
import { createRequestId, formatRequestId, type RequestId } from '../../ledger/request-id.ts'
import type { RequestWatch } from '../../observe/request-watch.ts'
import { authenticate } from '../authenticate.ts'
import { type AnswerForm, type ChatAnswer, openAnswer } from '../chat-answer.ts'
import { errorResponse, isRepeatable } from '../error-response.ts'
import { goneSignal, hasLeft } from '../gone.ts'
import type { Load, ServedRequest } from '../load.ts'
import { type BodyLimits, readJsonBytes, UploadCutError } from '../read-body.ts'
import { sendJson, sendJsonEarly, v1Headers } from '../send.ts'

export type ChatRouteServices = {
  readonly keys: KeyFinder
  readonly holds: Holds
  readonly models: ModelDirectory
  readonly admission: AdmissionParts
  readonly serving: ServingParts
  readonly retries: Retries
  readonly load: Load
  readonly failpoint: Failpoint
  readonly bodyLimits: BodyLimits
  readonly answering: {
    readonly streamKeepaliveMs: number
    readonly keepaliveAfterMs: number
    readonly blockedMsMax: number
  }
  readonly publicUrl: string
  readonly onError: (error: unknown, requestId: string) => void
}

/** `POST /v1/chat/completions`. */
export async function createChatCompletion(
  services: ChatRouteServices,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const payer = () => authenticate(services.keys, incoming.headers.authorization)
  await answerChat(services, incoming, outgoing, async () => ({ payer: await payer() }))
}

/** Who pays, and the body where that had to be read to know it. */
export type ChatOpening = { readonly payer: Payer; readonly body?: Buffer }

/** A chat completion for whoever `open` says pays for it. */
export async function answerChat(
  services: ChatRouteServices,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  open: () => Promise<ChatOpening>,
): Promise<void> {
  const watch = services.serving.observer.watch(incoming.headers.traceparent)
  const attempt: Attempt = { requestId: createRequestId(0, Date.now()), payer: undefined, body: undefined, watch }
  try {
    const opening = await open()
    attempt.payer = opening.payer
    attempt.requestId = createRequestId(opening.payer.partition, Date.now())
    await services.load.during(opening.payer.accountId, async (request) => {
      try {
        await serve(services, attempt, opening, request, incoming, outgoing)
      } catch (error) {
        refuse(services, attempt, error, outgoing)
      }
      // Until then it is being served: a restart must not cut off what was charged as delivered.
      await hasLeft(outgoing)
    })
  } catch (error) {
    refuse(services, attempt, error, outgoing)
  }
}

/** What is known of a request when it is refused. */
type Attempt = {
  requestId: RequestId
  payer: Payer | undefined
  body: unknown
  readonly watch: RequestWatch
}

async function serve(
  services: ChatRouteServices,
  attempt: Attempt,
  opening: ChatOpening,
  request: ServedRequest,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const gone = goneSignal(outgoing, request)
  const prepared = await prepare(services, attempt, opening, { request, gone }, incoming)
  if ('order' in prepared) await answerOrder(services, prepared.order, prepared.own, gone, outgoing)
  else await answerRetry(services, attempt, prepared, gone, outgoing)
}

/** A request that is paid for, or a retry that gets the answer of an earlier attempt. */
type Prepared = { readonly order: Order; readonly own: OwnAttempt } | PreparedRetry

type PreparedRetry = {
  readonly form: AnswerForm
  readonly found: { readonly replay: Recording } | { readonly earlier: EarlierAttempt }
}

/**
 * From the bytes to the hold. What was sent may be megabytes and is let go with this: an answer is written, and a retry waits, for
 * minutes.
 */
async function prepare(
  services: ChatRouteServices,
  attempt: Attempt,
  { payer, body }: ChatOpening,
  { request, gone }: { readonly request: ServedRequest; readonly gone: AbortSignal },
  incoming: IncomingMessage,
): Promise<Prepared> {
  const bytes = body ?? (await readJsonBytes(incoming, services.bodyLimits, payer.accountId))
  request.begin()
  attempt.body = parseJsonBody(bytes)
  const chat = parseChatRequest(attempt.body, services.models)
  refuseUnavailable(chat, services.admission.web)
  services.failpoint('after_parse')
  const marks = { payer, body: bytes, ...readRetryHeaders(incoming) }
  const { requestId, watch } = attempt
  const decision = await services.retries.decide(marks, requestId)
  if (!('own' in decision)) {
    const { model, stream, includeUsage } = chat
    attempt.body = { model, stream }
    return { form: { stream, includeUsage }, found: decision }
  }
  const { own } = decision
  const applicant = { requestId, payer, chat, bodyHash: own.attemptHash, watch, signal: gone }
  const order = await admit(services.admission, applicant).catch(async (error) => {
    await own.close(undefined)
    if (isRepeatable(error) && !gone.aborted) own.toldToRetry()
    throw error
  })
  attempt.body = undefined
  return { order, own }
}

/**
 * Gives the answer of an earlier attempt, under its request id. As soon as that attempt is known, the connection is kept alive like
 * its own, and the headers are those of its answer.
 */
async function answerRetry(
  services: ChatRouteServices,
  { watch }: Attempt,
  { form, found }: PreparedRetry,
  gone: AbortSignal,
  outgoing: ServerResponse,
): Promise<void> {
  let answer: ChatAnswer | undefined
  const begin = (head: AnswerHead) => {
    answer ??= open(services, head, form, outgoing, { 'idempotent-replayed': 'true' })
    return answer
  }
  try {
    const replay = 'replay' in found ? found.replay : await services.retries.waitFor(found.earlier, gone, begin)
    const { finishReason } = replay
    void begin(replay).deliver([...replay.events, { type: 'finish', reason: finishReason }])
    begin(replay).succeed(replay)
    services.serving.observer.replayed(watch, formatRequestId(replay.requestId), replay.model)
  } catch (error) {
    if (answer !== undefined && outgoing.headersSent) answer.fail(error)
    else {
      answer?.abandon()
      throw error
    }
  }
}

/** From here on the hold exists: whatever happens, it ends in the ledger, and the answer says how. */
async function answerOrder(
  services: ChatRouteServices,
  order: Order,
  own: OwnAttempt,
  clientGone: AbortSignal,
  outgoing: ServerResponse,
): Promise<void> {
  const head = {
    requestId: order.requestId,
    model: order.model.id,
    createdAt: order.hold.createdAt,
    held: order.hold.quote,
  }
  own.attempt?.admitted(head)
  const answer = open(services, head, order.chat, outgoing)
  let recording: Recording | undefined
  // An answer that cannot be kept is an answer all the same.
  const report = (error: unknown) => services.onError(error, formatRequestId(order.requestId))
  const close = (kept: Recording | undefined) => own.close(kept).catch(report)
  try {
    const completion = await completeChat(
      services.serving,
      order,
      audienceOf(answer, own, clientGone, order.chat.stream),
    )
    if (completion.status === 'succeeded') {
      const events = own.attempt?.recorder.events
      recording = events && { ...head, ...completion.end, events }
      await own.delivered().catch(report)
      await close(recording)
      services.failpoint('before_last_frame')
      answer.succeed(completion.end, { 'server-timing': order.watch.serverTiming })
    } else if (completion.status === 'failed') {
      services.onError(completion.failure, formatRequestId(order.requestId))
      // Before its headers have left it is a plain refusal, which SDKs repeat, and delivered nothing that it could be charged for.
      if (isRepeatable(completion.failure) && !outgoing.headersSent && !outgoing.destroyed) own.toldToRetry()
      answer.fail(completion.failure)
    } else answer.abandon()
  } catch (error) {
    services.onError(error, formatRequestId(order.requestId))
    services.serving.observer.lost(order.watch, formatRequestId(order.requestId), head.model, order.chat.stream)
    answer.fail(error)
  } finally {
    if (recording === undefined) await close(undefined)
  }
}

/** The client, and the retries that join its attempt: events are recorded for those. */
function audienceOf(answer: ChatAnswer, { attempt }: OwnAttempt, clientGone: AbortSignal, isStream: boolean): Audience {
  if (attempt === undefined) return { gone: clientGone, deliver: answer.deliver }
  const leave = () => attempt.leave(clientGone.reason, isStream && attempt.recorder.bytes > 0)
  if (clientGone.aborted) leave()
  else clientGone.addEventListener('abort', leave, { once: true })
  return {
    gone: attempt.signal,
    attempt,
    deliver(events) {
      attempt.recorder.add(events)
      if (!clientGone.aborted) return answer.deliver(events)
      // Nobody can be given this answer from its beginning any more.
      if (attempt.recorder.events === undefined) attempt.cancel(clientGone.reason)
      // No search or page is paid for while nobody waits.
      return events.some(({ type }) => type === 'activity') ? attempt.waitForClient() : undefined
    },
  }
}

function open(
  services: ChatRouteServices,
  head: AnswerHead,
  form: AnswerForm,
  outgoing: ServerResponse,
  headers: Readonly<Record<string, string>> = {},
): ChatAnswer {
  const requestId = formatRequestId(head.requestId)
  return openAnswer(head, form, outgoing, {
    headers: { ...v1Headers(requestId), ...headers },
    requestId,
    publicUrl: services.publicUrl,
    ...services.answering,
  })
}

function readRetryHeaders({ headers }: IncomingMessage): Pick<RetryMarks, 'idempotencyKey' | 'retryCount'> {
  const key = headers['idempotency-key']
  const count = headers['x-stainless-retry-count']
  return {
    idempotencyKey: typeof key === 'string' && key !== '' ? key : undefined,
    retryCount: typeof count === 'string' && /^\d{1,3}$/.test(count) ? Number(count) : undefined,
  }
}

/** Nothing is held. The customer is told why, and finds the attempt in the log. */
function refuse(services: ChatRouteServices, attempt: Attempt, error: unknown, outgoing: ServerResponse): void {
  if (error instanceof UploadCutError || outgoing.destroyed) return
  const requestId = formatRequestId(attempt.requestId)
  const response = errorResponse(error, { requestId, publicUrl: services.publicUrl })
  const { code } = response.body.error
  services.serving.observer.refused(attempt.watch, { requestId, ...attempt.payer, status: response.status, code })
  if (attempt.payer !== undefined && loggedStatuses.has(response.status)) {
    services.holds.refuse({
      requestId: attempt.requestId,
      payer: attempt.payer,
      ...describe(attempt.body),
      errorCode: code,
    })
  }
  if (!(error instanceof ServiceError)) services.onError(error, requestId)
  const headers = { ...v1Headers(requestId), ...response.headers }
  if (isReadAway(outgoing.req)) sendJson(outgoing, response.status, response.body, headers)
  else void sendJsonEarly(outgoing, response.status, response.body, headers)
}

const shortBytesMax = 64 * 1024

/** Read, or short and untouched: Node reads past that by itself, and under load a connection is too dear to be closed for it. */
function isReadAway({ complete, readableDidRead, headers }: IncomingMessage): boolean {
  return complete || (!readableDidRead && Number(headers['content-length']) <= shortBytesMax)
}

const loggedStatuses = new Set([400, 402, 404, 422, 429, 503])
const modelNameMax = 100

/** The little of an unparsed body that helps a customer recognise the attempt. */
function describe(body: unknown): { model: string | undefined; stream: boolean; maxTokens: undefined } {
  const { model, stream } = (body ?? {}) as { model?: unknown; stream?: unknown }
  return {
    model: typeof model === 'string' ? model.slice(0, modelNameMax) : undefined,
    stream: stream === true,
    maxTokens: undefined,
  }
}
