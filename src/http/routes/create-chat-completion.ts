import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AdmissionTools, admit } from '../../chat/admit.ts'
import { completeChat, type ServingTools } from '../../chat/complete-chat.ts'
import { ServiceError } from '../../errors.ts'
import type { KeyFinder } from '../../identity/api-keys.ts'
import { type ModelDirectory, parseChatRequest } from '../../inference/chat-request.ts'
import { parseJsonBody } from '../../inference/json-body.ts'
import type { Holds, Payer } from '../../ledger/holds.ts'
import { createRequestId, formatRequestId, type RequestId } from '../../ledger/request-id.ts'
import { authenticate } from '../authenticate.ts'
import { openAnswer } from '../chat-answer.ts'
import { errorResponse } from '../error-response.ts'
import { goneSignal } from '../gone.ts'
import type { Load } from '../load.ts'
import { type BodyLimits, readJsonBytes, UploadCutError } from '../read-body.ts'
import { sendJson, v1Headers } from '../send.ts'

export type ChatRouteServices = {
  readonly keys: KeyFinder
  readonly holds: Holds
  readonly models: ModelDirectory
  readonly admission: AdmissionTools
  readonly serving: ServingTools
  readonly load: Load
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
  const attempt: Attempt = { requestId: createRequestId(0, Date.now()), payer: undefined, body: undefined }
  try {
    attempt.payer = await authenticate(services.keys, incoming.headers.authorization)
    attempt.requestId = createRequestId(attempt.payer.partition, Date.now())
    await services.load.during(() => serve(services, attempt, attempt.payer!, incoming, outgoing))
  } catch (error) {
    refuse(services, attempt, error, outgoing)
  }
}

/** What is known of a request when it is refused. */
type Attempt = {
  requestId: RequestId
  payer: Payer | undefined
  body: unknown
}

async function serve(
  services: ChatRouteServices,
  attempt: Attempt,
  payer: Payer,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const gone = goneSignal(outgoing)
  attempt.body = parseJsonBody(await readJsonBytes(incoming, services.bodyLimits))
  const chat = parseChatRequest(attempt.body, services.models)
  const order = await admit(services.admission, attempt.requestId, payer, chat)

  // From here on the hold exists: whatever happens, it ends in the ledger, and the answer says how.
  const requestId = formatRequestId(order.requestId)
  const answer = openAnswer(order, outgoing, {
    headers: v1Headers(requestId),
    requestId,
    publicUrl: services.publicUrl,
    ...services.answering,
  })
  try {
    const completion = await completeChat(services.serving, order, { gone, deliver: answer.deliver })
    if (completion.charge.status === 'succeeded') answer.succeed(completion)
    else if (completion.charge.status === 'failed') {
      services.onError(completion.failure, requestId)
      answer.fail(completion.failure)
    }
  } catch (error) {
    services.onError(error, requestId)
    answer.fail(error)
  }
}

/** Nothing is held. The customer is told why, and finds the attempt in the log. */
function refuse(services: ChatRouteServices, attempt: Attempt, error: unknown, outgoing: ServerResponse): void {
  if (error instanceof UploadCutError || outgoing.destroyed) return
  const requestId = formatRequestId(attempt.requestId)
  const response = errorResponse(error, { requestId, publicUrl: services.publicUrl })
  if (attempt.payer !== undefined && loggedStatuses.has(response.status)) {
    services.holds.refuse({
      requestId: attempt.requestId,
      payer: attempt.payer,
      ...describe(attempt.body),
      errorCode: response.body.error.code,
    })
  }
  if (!(error instanceof ServiceError)) services.onError(error, requestId)
  // A body that was not read to its end would be taken for the next request.
  const close = outgoing.req.complete ? undefined : { connection: 'close' }
  sendJson(outgoing, response.status, response.body, { ...v1Headers(requestId), ...response.headers, ...close })
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
