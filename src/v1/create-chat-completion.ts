import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AdmissionParts, type AdmittedRequest, admit } from '../chat/admit.ts'
import { type Audience, completeChat, type ServingParts } from '../chat/complete-chat.ts'
import { checkKeyRules, isKeyRuleError, underKeyRules } from '../chat/key-rules.ts'
import type { AttemptHead, Recording } from '../chat/recording.ts'
import type { EarlierAttempt, OwnAttempt, Retries, RetryMarks } from '../chat/retries.ts'
import { refuseUnavailable } from '../chat/tool-offer.ts'
import { type AccountRef, accountRef } from '../db/account-ref.ts'
import { ServiceError } from '../errors.ts'
import { authenticate } from '../http/authenticate.ts'
import { errorResponse, isRepeatable } from '../http/error-response.ts'
import { goneSignal, hasLeft } from '../http/gone.ts'
import type { Load, ServedRequest } from '../http/load.ts'
import { type BodyLimits, readJsonBytes, UploadCutError } from '../http/read-body.ts'
import { sendJson, sendJsonEarly, v1Headers } from '../http/send.ts'
import type { UnidentifiedCalls } from '../http/unidentified-calls.ts'
import type { UndecidedRequest, UnpaidRequests } from '../http/unpaid-requests.ts'
import { isLarge, type UnreadBodies } from '../http/unread-bodies.ts'
import { visitorOf } from '../http/visitor.ts'
import type { Bearer, KeyFinder } from '../identity/key-finder.ts'
import type { KeyOptions } from '../identity/key-options.ts'
import { type ChatRequest, type ModelDirectory, parseChatRequest } from '../inference/chat-request.ts'
import { parseJsonBody } from '../inference/json-body.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import { type Holds, KeyChangedError } from '../ledger/holds.ts'
import { createRequestId, formatRequestId, type RequestId } from '../ledger/request-id.ts'
import type { RequestWatch } from '../observe/request-watch.ts'
import type { Failpoint } from '../process/failpoints.ts'
import { type AnswerForm, type ChatAnswer, openAnswer } from './chat-answer.ts'

export type ChatRouteServices = {
  readonly keys: KeyFinder
  readonly holds: Holds
  readonly models: ModelDirectory
  readonly admission: AdmissionParts
  readonly serving: ServingParts
  readonly retries: Retries
  readonly load: Load
  readonly unpaid: UnpaidRequests
  readonly unreadBodies: UnreadBodies
  readonly unidentified: UnidentifiedCalls
  readonly failpoint: Failpoint
  readonly bodyLimits: BodyLimits
  readonly answering: {
    readonly streamKeepaliveMs: number
    readonly keepaliveAfterMs: number
    readonly blockedMsMax: number
  }
  readonly publicUrl: string
  readonly trustProxy: boolean
  readonly onError: (error: unknown, requestId: string) => void
}

/** `POST /v1/chat/completions`. */
export async function createChatCompletion(
  services: ChatRouteServices,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const visitor = visitorOf(incoming, services.trustProxy)
  await answerChat(services, incoming, outgoing, async () => {
    const bearer = await authenticate(services.keys, visitor).catch((error: unknown) => {
      if (error instanceof ServiceError) services.unidentified.report(visitor, error)
      throw error
    })
    return { account: accountRef(bearer), limitedAs: bearer.keyId, bearer, open: async () => ({ bearer }) }
  })
}

/** Who asks for a completion, known from the head of the request. */
export type ChatCaller = {
  readonly account: AccountRef
  /** Under which name its refused requests are counted: a key, or the account's sessions. */
  readonly limitedAs: string
  /** Where the head tells which key pays. */
  readonly bearer?: Bearer
  /** Called when the body may be read. */
  readonly open: () => Promise<ChatOpening>
}

/** Who pays, and the body where that had to be read to know it. */
export type ChatOpening = { readonly bearer: Bearer; readonly body?: Buffer; readonly funding?: ChatFunding }

/** Where the money of a request comes from, when it is not the account of an API key. */
export type ChatFunding = {
  readonly options: () => Promise<KeyOptions>
  /** Places the hold, or throws what has to be paid first. */
  readonly admission: Required<Pick<AdmissionParts, 'holds' | 'refuseUnpaid'>>
  /** False for a caller without an account: then its refusals are not logged. */
  readonly isLogged: boolean
  /** False for a caller that is not known: then nothing is written for a retry to find. */
  readonly isRetriable: boolean
  /** Of the answer, whatever it is. Empty until something was paid. */
  readonly headers: () => Readonly<Record<string, string>>
  /** What a refusal or failure adds about the payment. */
  readonly errorFields: () => Readonly<Record<string, string>>
}

/** One request and its answer: what every step from its first byte to its last needs. */
type Exchange = {
  readonly services: ChatRouteServices
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  readonly watch: RequestWatch
  requestId: RequestId
  /** Undefined until it is known. */
  payer: Payer | undefined
  /** Undefined until it is admitted. */
  undecided: UndecidedRequest | undefined
  /** Undefined for the account of an API key. */
  funding: ChatFunding | undefined
  /** As parsed, for the log of a refusal. Dropped once the request is paid for: it may be megabytes. */
  body: unknown
}

/** A chat completion for the caller that `identify` finds. */
export async function answerChat(
  services: ChatRouteServices,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  identify: () => Promise<ChatCaller>,
): Promise<void> {
  const { network } = visitorOf(incoming, services.trustProxy)
  const exchange: Exchange = {
    services,
    incoming,
    outgoing,
    watch: services.serving.observer.watch(incoming.headers.traceparent),
    requestId: createRequestId(0, Date.now()),
    payer: undefined,
    undecided: undefined,
    funding: undefined,
    body: undefined,
  }
  try {
    const caller = await identify().catch(async (error) => {
      await services.unpaid.beforeRefusal(error, { outgoing, network })
      throw error
    })
    if (caller.bearer !== undefined) payWith(exchange, caller.bearer)
    const { account, limitedAs: keyId } = caller
    exchange.undecided = await services.unpaid.admit({ ...account, keyId }, { incoming, outgoing, network })
    await exchange.undecided.mayRead()
    const opening = await caller.open()
    exchange.funding = opening.funding
    if (caller.bearer === undefined) payWith(exchange, opening.bearer)
    await services.load.during(account.accountId, async (request) => {
      try {
        await serve(exchange, opening, request)
      } catch (error) {
        refuse(exchange, error)
      }
      // Until then it is being served: a restart must not cut off what was charged as delivered.
      await hasLeft(outgoing)
    })
  } catch (error) {
    refuse(exchange, error)
  }
}

function payWith(exchange: Exchange, bearer: Bearer): void {
  if (exchange.funding?.isLogged !== false) exchange.payer = payerOf(bearer)
  exchange.requestId = createRequestId(bearer.partition, Date.now())
}

function payerOf({ partition, accountId, keyId, depositAddress, x402Wallet }: Bearer): Payer {
  return { partition, accountId, keyId, depositAddress, x402Wallet }
}

async function serve(exchange: Exchange, opening: ChatOpening, request: ServedRequest): Promise<void> {
  const clientSignal = goneSignal(exchange.outgoing, request)
  const prepared = await prepare(exchange, opening, { request, clientSignal })
  if ('admitted' in prepared) await answerAdmitted(exchange, prepared, clientSignal)
  else await answerRetry(exchange, prepared, clientSignal)
}

/** A request that is paid for, or a retry that gets the answer of an earlier attempt. */
type Prepared = PaidRequest | PreparedRetry

type PaidRequest = { readonly admitted: AdmittedRequest; readonly own: OwnAttempt }

type PreparedRetry = {
  readonly form: AnswerForm
  readonly found: { readonly replay: Recording } | { readonly earlier: EarlierAttempt }
}

/**
 * From the bytes to the hold. What was sent may be megabytes and is let go with this: an answer is written, and a retry waits, for
 * minutes.
 */
async function prepare(
  exchange: Exchange,
  { bearer, body, funding }: ChatOpening,
  { request, clientSignal }: { readonly request: ServedRequest; readonly clientSignal: AbortSignal },
): Promise<Prepared> {
  const { services, incoming } = exchange
  const payer = payerOf(bearer)
  const bytes = body ?? (await readJsonBytes(incoming, services.bodyLimits, payer.accountId))
  request.begin()
  exchange.body = parseJsonBody(bytes)
  const asked = parseChatRequest(exchange.body, services.models)
  services.failpoint('after_parse')
  const marks = { payer, body: bytes, ...(funding?.isRetriable === false ? noRetry : readRetryHeaders(incoming)) }
  const mayReplay = marks.idempotencyKey !== undefined || (marks.retryCount ?? 0) > 0
  // The hold notices that the options have changed. A retry may get its answer without one, so its options are read now.
  const currentOptions = () => funding?.options() ?? services.keys.currentOptions(bearer)
  let options = mayReplay || funding !== undefined ? await currentOptions() : bearer.options
  for (let changes = 0; ; changes += 1) {
    try {
      return await decide(exchange, { asked, options, marks, clientSignal })
    } catch (error) {
      // A refusal by the key's rules is never based on a cache.
      const isDoubtful = error instanceof KeyChangedError || isKeyRuleError(error)
      const current = isDoubtful ? await currentOptions() : options
      if (current.version === options.version || changes === keyChangesMax) throw error
      options = current
    }
  }
}

/** How often a request is checked again because its key was changed meanwhile. */
const keyChangesMax = 5

type CheckedRequest = {
  readonly asked: ChatRequest
  readonly options: KeyOptions
  readonly marks: RetryMarks
  readonly clientSignal: AbortSignal
}

/** Checks the request against its key's options, then finds the answer of an earlier attempt or places the hold. */
async function decide(exchange: Exchange, { asked, options, marks, clientSignal }: CheckedRequest): Promise<Prepared> {
  const { services, incoming, requestId, watch } = exchange
  const { payer } = marks
  // Before a retry is given an earlier answer: what the key may not ask for, it does not get from there either.
  checkKeyRules(options, asked, visitorOf(incoming, services.trustProxy).address)
  const chat = underKeyRules(options, asked)
  refuseUnavailable(chat, services.admission.web)
  const decision = await services.retries.decide(marks, requestId)
  if (!('own' in decision)) {
    const { model, stream, includeUsage } = chat
    exchange.body = { model, stream }
    return { form: { stream, includeUsage }, found: decision }
  }
  const { own } = decision
  const applicant = { requestId, payer, options, chat, bodyHash: own.attemptHash, watch, signal: clientSignal }
  const admission = { ...services.admission, ...exchange.funding?.admission }
  const admitted = await admit(admission, applicant).catch(async (error) => {
    await own.close(undefined)
    if (isRepeatable(error) && !clientSignal.aborted) own.expectRetry()
    throw error
  })
  exchange.undecided?.paid()
  exchange.body = undefined
  return { admitted, own }
}

/**
 * Gives the answer of an earlier attempt, under its request id. As soon as that attempt is known, the connection is kept alive like
 * its own, and the headers are those of its answer.
 */
async function answerRetry(
  exchange: Exchange,
  { form, found }: PreparedRetry,
  clientSignal: AbortSignal,
): Promise<void> {
  const { services, outgoing, watch } = exchange
  let answer: ChatAnswer | undefined
  const begin = (head: AttemptHead) => {
    answer ??= open(exchange, head, form, { 'idempotent-replayed': 'true' })
    return answer
  }
  try {
    const replay = 'replay' in found ? found.replay : await services.retries.waitFor(found.earlier, clientSignal, begin)
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
async function answerAdmitted(
  exchange: Exchange,
  { admitted, own }: PaidRequest,
  clientSignal: AbortSignal,
): Promise<void> {
  const { services, outgoing } = exchange
  const head = {
    requestId: admitted.requestId,
    model: admitted.model.id,
    createdAt: admitted.hold.createdAt,
    held: admitted.hold.quote,
  }
  own.attempt?.admitted(head)
  const answer = open(exchange, head, admitted.chat)
  let recording: Recording | undefined
  // An answer that cannot be kept is an answer all the same.
  const report = (error: unknown) => services.onError(error, formatRequestId(admitted.requestId))
  const close = (kept: Recording | undefined) => own.close(kept).catch(report)
  try {
    const completion = await completeChat(
      services.serving,
      admitted,
      audienceOf(answer, own, clientSignal, admitted.chat.stream),
    )
    if (completion.status === 'succeeded') {
      const events = own.attempt?.recorder.events
      recording = events && { ...head, ...completion.end, events }
      await own.delivered().catch(report)
      await close(recording)
      services.failpoint('before_last_frame')
      answer.succeed(completion.end, { 'server-timing': admitted.watch.serverTiming })
    } else if (completion.status === 'failed') {
      services.onError(completion.failure, formatRequestId(admitted.requestId))
      // Before its headers have left it is a plain refusal, which SDKs repeat, and delivered nothing that it could be charged for.
      if (isRepeatable(completion.failure) && !outgoing.headersSent && !outgoing.destroyed) own.expectRetry()
      answer.fail(completion.failure)
    } else answer.abandon()
  } catch (error) {
    services.onError(error, formatRequestId(admitted.requestId))
    services.serving.observer.lost(
      admitted.watch,
      formatRequestId(admitted.requestId),
      head.model,
      admitted.chat.stream,
    )
    answer.fail(error)
  } finally {
    if (recording === undefined) await close(undefined)
  }
}

/** The client, and the retries that join its attempt: events are recorded for those. */
function audienceOf(
  answer: ChatAnswer,
  { attempt }: OwnAttempt,
  clientSignal: AbortSignal,
  isStream: boolean,
): Audience {
  if (attempt === undefined) return { clientSignal, deliver: answer.deliver }
  const leave = () => attempt.leave(clientSignal.reason, isStream && attempt.recorder.bytes > 0)
  if (clientSignal.aborted) leave()
  else clientSignal.addEventListener('abort', leave, { once: true })
  return {
    clientSignal: attempt.signal,
    attempt,
    deliver(events) {
      attempt.recorder.add(events)
      if (!clientSignal.aborted) return answer.deliver(events)
      // Nobody can be given this answer from its beginning any more.
      if (attempt.recorder.events === undefined) attempt.cancel(clientSignal.reason)
      // No search or page is paid for while nobody waits.
      return events.some(({ type }) => type === 'activity') ? attempt.waitForClient() : undefined
    },
  }
}

function open(
  { services, outgoing, funding }: Exchange,
  head: AttemptHead,
  form: AnswerForm,
  headers: Readonly<Record<string, string>> = {},
): ChatAnswer {
  const requestId = formatRequestId(head.requestId)
  return openAnswer(head, form, outgoing, {
    headers: { ...v1Headers(requestId), ...funding?.headers(), ...headers },
    requestId,
    publicUrl: services.publicUrl,
    extra: funding?.errorFields(),
    ...services.answering,
  })
}

const noRetry = { idempotencyKey: undefined, retryCount: undefined }

function readRetryHeaders({ headers }: IncomingMessage): Pick<RetryMarks, 'idempotencyKey' | 'retryCount'> {
  const key = headers['idempotency-key']
  const count = headers['x-stainless-retry-count']
  return {
    idempotencyKey: typeof key === 'string' && key !== '' ? key : undefined,
    retryCount: typeof count === 'string' && /^\d{1,3}$/.test(count) ? Number(count) : undefined,
  }
}

/** Nothing is held. The customer is told why, and finds the attempt in the log. */
function refuse(
  { services, outgoing, watch, payer, undecided, body, funding, ...exchange }: Exchange,
  error: unknown,
): void {
  undecided?.refused(error)
  if (error instanceof UploadCutError || outgoing.destroyed) return
  const requestId = formatRequestId(exchange.requestId)
  const response = errorResponse(error, { requestId, publicUrl: services.publicUrl, extra: funding?.errorFields() })
  const { code } = response.body.error
  services.serving.observer.refused(watch, { requestId, ...payer, status: response.status, code })
  // A 402 that asks a wallet to pay is the first half of its request, not a refusal of it.
  if (payer !== undefined && loggedStatuses.has(response.status) && code !== 'payment_required') {
    services.holds.refuse({
      requestId: exchange.requestId,
      payer,
      ...describe(body),
      errorCode: code,
    })
  }
  if (!(error instanceof ServiceError)) services.onError(error, requestId)
  const headers = { ...v1Headers(requestId), ...funding?.headers(), ...response.headers }
  const { req: incoming } = outgoing
  // Node reads past a short body by itself, and under load a connection is too expensive to be closed for it.
  if (incoming.complete || (!incoming.readableDidRead && !isLarge(incoming))) {
    sendJson(outgoing, response.status, response.body, headers)
  } else {
    const { network } = visitorOf(incoming, services.trustProxy)
    const discard = () => services.unreadBodies.discard(incoming, network)
    void sendJsonEarly(outgoing, { ...response, headers }, discard)
  }
}

const loggedStatuses = new Set([400, 402, 403, 404, 422, 429, 503])
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
