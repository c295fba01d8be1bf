import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AdmissionParts, type AdmittedRequest, admit } from '../chat/admit.ts'
import { type Answer, type AnswerReader, headOf, type ServingParts } from '../chat/answer.ts'
import { checkKeyRules, isKeyRuleError, underKeyRules } from '../chat/key-rules.ts'
import type { AnswerHead, Recording } from '../chat/log.ts'
import type { EarlierAttempt, Retries, RetryMarks } from '../chat/retries.ts'
import { refuseUnavailable } from '../chat/tool-offer.ts'
import { type AccountRef, accountRef } from '../db/account-ref.ts'
import { ServiceError } from '../errors.ts'
import { authenticate } from '../http/authenticate.ts'
import { disconnectSignal, responseClosed } from '../http/disconnect.ts'
import { errorResponse, isRepeatable } from '../http/error-response.ts'
import type { Load, ServedRequest } from '../http/load.ts'
import { type BodyLimits, readJsonBytes, UploadAbortedError } from '../http/read-body.ts'
import { mayReplay, readRetryHeaders } from '../http/retry-headers.ts'
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
import { isCustomersFault } from '../providers/upstream-errors.ts'
import { openReader, type ReaderForm } from './reader.ts'

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

/** The caller, as far as the headers identify it. */
export type ChatCaller = {
  readonly account: AccountRef
  /** The rate limit name of its refused requests: a key, or the account's sessions. */
  readonly limitedAs: string
  /** Set when the headers identify the key that pays. */
  readonly bearer?: Bearer
  /** True when the request may bring its money: then an empty balance is no reason to leave its body unread. */
  readonly mayPay?: boolean
  /** Called before the body is read. */
  readonly open: () => Promise<ChatOpening>
}

/** The payer, and the body if it had to be read to find the payer. */
export type ChatOpening = { readonly bearer: Bearer; readonly body?: Buffer; readonly funding?: ChatFunding }

/** Where the money of a request comes from, when it is not the account of an API key. */
export type ChatFunding = {
  /** Whose share of bodies in memory and of the token counter it uses. Not the payer's own: wallets cost nothing to make. */
  readonly sharesOf: string
  readonly options: () => Promise<KeyOptions>
  /** Places the hold, or throws the payment that is required first. */
  readonly admission: Required<Pick<AdmissionParts, 'holds' | 'refuseUnpaid'>>
  /** False for a caller without an account: then its refusals are not logged. */
  readonly isLogged: boolean
  /** False for an unknown caller: then nothing is stored for retries. */
  readonly isRetriable: boolean
  /** Headers of every answer. Empty until something was paid. */
  readonly headers: () => Readonly<Record<string, string>>
  /** Fields that an error adds about the payment. */
  readonly errorFields: () => Readonly<Record<string, string>>
}

/** One request and its answer: the state that all steps share. */
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
  /** The parsed body, for the log of a refusal. Dropped once the request is paid for: it may be megabytes. */
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
    if (caller.mayPay !== true) await exchange.undecided.mayRead()
    const opening = await caller.open()
    exchange.funding = opening.funding
    if (caller.bearer === undefined) payWith(exchange, opening.bearer)
    await services.load.during(account.accountId, async (request) => {
      try {
        await serve(exchange, opening, request)
      } catch (error) {
        refuse(exchange, error)
      }
      // The request is in progress until its last byte is sent: a restart must not cut off an answer that was charged.
      await responseClosed(outgoing)
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
  const clientSignal = disconnectSignal(exchange.outgoing, request)
  const { stop } = request
  let stopped: ServiceError | undefined
  let answer: Answer | undefined
  request.stop = (reason) => {
    stop(reason)
    stopped = reason
    // The signal does not tell it when the client has left before.
    answer?.stop(reason)
  }
  const prepared = await prepare(exchange, opening, { request, clientSignal })
  if ('found' in prepared) return answerRetry(exchange, prepared, clientSignal)
  answer = prepared.answer
  if (stopped !== undefined) answer.stop(stopped)
  await serveAnswer(exchange, prepared, clientSignal)
}

/** A request whose money is held, or a retry that gets the answer of an earlier attempt. */
type Prepared = AdmittedAnswer | PreparedRetry

type AdmittedAnswer = { readonly admitted: AdmittedRequest; readonly answer: Answer }

type PreparedRetry = {
  readonly form: ReaderForm
  readonly found: { readonly replay: Recording } | { readonly earlier: EarlierAttempt }
}

/**
 * From the bytes to the hold. A separate function so that the body, which may be megabytes, is freed here: answers and waiting retries
 * last for minutes.
 */
async function prepare(
  exchange: Exchange,
  { bearer, body, funding }: ChatOpening,
  { request, clientSignal }: { readonly request: ServedRequest; readonly clientSignal: AbortSignal },
): Promise<Prepared> {
  const { services, incoming } = exchange
  const payer = payerOf(bearer)
  const sharesOf = funding?.sharesOf ?? payer.accountId
  const bytes = body ?? (await readJsonBytes(incoming, services.bodyLimits, sharesOf))
  request.begin()
  exchange.body = parseJsonBody(bytes)
  const asked = parseChatRequest(exchange.body, services.models)
  services.failpoint('after_parse')
  const marks = { payer, body: bytes, ...(funding?.isRetriable === false ? noRetry : readRetryHeaders(incoming)) }
  // The hold detects changed options. A retry may need no hold, so its options are read now.
  const currentOptions = () => funding?.options() ?? services.keys.currentOptions(bearer)
  let options = mayReplay(marks) || funding !== undefined ? await currentOptions() : bearer.options
  for (let changes = 0; ; changes += 1) {
    let refused: Answer | undefined
    const onRefused = (answer: Answer) => {
      refused = answer
    }
    try {
      return await decide(exchange, { asked, options, marks, sharesOf, clientSignal, onRefused })
    } catch (error) {
      // A refusal by the key's rules is never based on a cache.
      const isDoubtful = error instanceof KeyChangedError || isKeyRuleError(error)
      const current = isDoubtful ? await currentOptions() : options
      if (current.version === options.version || changes === keyChangesMax) {
        if (isRepeatable(error) && !clientSignal.aborted) refused?.expectRetry()
        throw error
      }
      options = current
    }
  }
}

/** How often a request is checked again because its key changed in the meantime. */
const keyChangesMax = 5

type CheckedRequest = {
  readonly asked: ChatRequest
  readonly options: KeyOptions
  readonly marks: RetryMarks
  readonly sharesOf: string
  readonly clientSignal: AbortSignal
  /** Called with an answer that gets no hold. The request may be decided again under the key's new options. */
  readonly onRefused: (answer: Answer) => void
}

/** Checks the request against its key's options, then finds the answer of an earlier attempt or places the hold. */
async function decide(exchange: Exchange, checked: CheckedRequest): Promise<Prepared> {
  const { asked, options, marks, sharesOf, clientSignal, onRefused } = checked
  const { services, incoming, requestId, watch } = exchange
  const { payer } = marks
  // Before the lookup of earlier answers: a key must not get an answer that it may not request.
  checkKeyRules(options, asked, visitorOf(incoming, services.trustProxy).address)
  const chat = underKeyRules(options, asked)
  refuseUnavailable(chat, services.admission.web)
  const decision = await services.retries.decide(marks, requestId)
  if (!('answer' in decision)) {
    const { model, stream, includeUsage } = chat
    exchange.body = { model, stream }
    return { form: { stream, includeUsage }, found: decision }
  }
  const { answer } = decision
  const applicant = {
    requestId,
    payer,
    sharesOf,
    options,
    chat,
    bodyHash: answer.attemptHash,
    watch,
    signal: clientSignal,
  }
  const admission = { ...services.admission, ...exchange.funding?.admission }
  const admitted = await admit(admission, applicant).catch(async (error) => {
    await answer.refuse()
    onRefused(answer)
    throw error
  })
  exchange.undecided?.paid()
  exchange.body = undefined
  return { admitted, answer }
}

/**
 * Sends the answer of an earlier attempt, with its request id and headers. The connection is kept alive while that attempt runs.
 */
async function answerRetry(
  exchange: Exchange,
  { form, found }: PreparedRetry,
  clientSignal: AbortSignal,
): Promise<void> {
  const { services, outgoing, watch } = exchange
  let reader: AnswerReader | undefined
  const begin = (head: AnswerHead) => {
    reader ??= open(exchange, head, form, { 'idempotent-replayed': 'true' })
    return reader
  }
  try {
    const replay = 'replay' in found ? found.replay : await services.retries.waitFor(found.earlier, clientSignal, begin)
    const { finishReason } = replay
    void begin(replay).deliver([...replay.events, { type: 'finish', reason: finishReason }])
    begin(replay).succeed(replay)
    services.serving.observer.replayed(watch, formatRequestId(replay.requestId), replay.model)
  } catch (error) {
    if (reader !== undefined && outgoing.headersSent) reader.fail(error)
    else {
      reader?.abandon()
      throw error
    }
  }
}

function serveAnswer(
  exchange: Exchange,
  { admitted, answer }: AdmittedAnswer,
  clientSignal: AbortSignal,
): Promise<void> {
  const { services, outgoing, undecided } = exchange
  const onError = (error: unknown) => services.onError(error, formatRequestId(admitted.requestId))
  return answer.serve(services.serving, admitted, {
    reader: open(exchange, headOf(admitted), admitted.chat),
    signal: clientSignal,
    closed: () => responseClosed(outgoing),
    onFailed(failure) {
      // Not an error of the service. The observer has logged it.
      if (isCustomersFault(failure)) undecided?.refusedByModel(failure)
      else onError(failure)
    },
    onError,
  })
}

function open(
  { services, outgoing, funding }: Exchange,
  head: AnswerHead,
  form: ReaderForm,
  headers: Readonly<Record<string, string>> = {},
): AnswerReader {
  const requestId = formatRequestId(head.requestId)
  return openReader(head, form, outgoing, {
    headers: { ...v1Headers(requestId), ...funding?.headers(), ...headers },
    requestId,
    publicUrl: services.publicUrl,
    extra: funding?.errorFields(),
    ...services.answering,
  })
}

const noRetry = { idempotencyKey: undefined, retryCount: undefined }

/** Answers a request that was refused before the hold, and logs the attempt. */
function refuse(
  { services, outgoing, watch, payer, undecided, body, funding, ...exchange }: Exchange,
  error: unknown,
): void {
  undecided?.refused(error)
  if (error instanceof UploadAbortedError || outgoing.destroyed) return
  const requestId = formatRequestId(exchange.requestId)
  const response = errorResponse(error, { requestId, publicUrl: services.publicUrl, extra: funding?.errorFields() })
  const { code } = response.body.error
  services.serving.observer.refused(watch, { requestId, ...payer, status: response.status, code })
  // For a wallet, the 402 that asks for the payment is part of the protocol, not a refusal.
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
  // Node skips a short unread body itself. Under load, closing the connection for it would be too expensive.
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

/** The fields of an invalid body that help a customer recognise the attempt. */
function describe(body: unknown): { model: string | undefined; stream: boolean; maxTokens: undefined } {
  const { model, stream } = (body ?? {}) as { model?: unknown; stream?: unknown }
  return {
    model: typeof model === 'string' ? model.slice(0, modelNameMax) : undefined,
    stream: stream === true,
    maxTokens: undefined,
  }
}
