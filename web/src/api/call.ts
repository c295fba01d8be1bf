import type { Answer, Input, Operation, Session } from './shapes.ts'

/** An input whose operation is no longer known; `call` has checked it by then. */
type AnyInput = {
  readonly parameters?: Readonly<Record<string, string>> | undefined
  readonly query?: Readonly<Record<string, unknown>> | undefined
  readonly body?: unknown
}

/** Dialogs wait for the outcome of a call, so every call ends. The service answers much sooner than this. */
const callMsMax = 90_000

/** Calls one operation of the service and returns its answer, or throws its error. */
export async function call<Name extends Operation>(
  name: Name,
  ...[input = {} as Input<Name>, options = {}]: Rest<Name>
): Promise<Answer<Name>> {
  const deadline = AbortSignal.timeout(callMsMax)
  const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline])
  const response = await request(name, input as AnyInput, { ...options, signal })
  return (response.status === 204 ? undefined : await response.json().catch(asUnreachable(signal))) as Answer<Name>
}

/** The arguments after the name: the input may be left out where nothing in it is required. */
export type Rest<Name extends Operation> =
  Record<string, never> extends Input<Name>
    ? [input?: Input<Name>, options?: CallOptions]
    : [input: Input<Name>, options?: CallOptions]

export type CallOptions = {
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
  /** False when the call does not concern the account that this page shows, for example because it opens another one. */
  readonly isOfShownAccount?: boolean
}

/** The same, for answers that are read as they come. */
export async function request(
  name: Operation,
  input: AnyInput,
  { headers = {}, signal, isOfShownAccount = true }: CallOptions = {},
): Promise<Response> {
  const [method = ''] = name.split(' ')
  const { body } = input
  const shown = isOfShownAccount ? document.documentElement.dataset : {}
  const response = await fetch(addressOf(name, input), {
    method,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(shown.account !== undefined && method !== 'GET' && { 'x-router-account': shown.account }),
      ...(shown.person !== undefined && method !== 'GET' && { 'x-router-person': shown.person }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal !== undefined && { signal }),
  }).catch(asUnreachable(signal))
  if (!response.ok) throw await refusalOf(response)
  return response
}

/** No answer, or only a part of one: unless the page itself cancelled the call. */
function asUnreachable(signal: AbortSignal | undefined) {
  return (cause: unknown): never => {
    if (signal?.aborted && signal.reason.name !== 'TimeoutError') throw cause
    throw new UnreachableError(cause)
  }
}

/**
 * The account that this page shows, also while its session has ended. It is sent with every change, and so is the person. All windows of
 * a browser share a session: after a switch or a sign-in in another window the service refuses changes from this one.
 */
export function shownAccount(): string | undefined {
  return document.documentElement.dataset.account
}

/** Remembers the account and the person that this page shows. Undefined after a sign-out. */
export function showAccount(session: Session | undefined): void {
  const { dataset } = document.documentElement
  delete dataset.account
  delete dataset.person
  if (session?.signed_in) Object.assign(dataset, { account: session.account?.id, person: session.person?.id })
}

/** Whether this is a session of the account and the person that this page shows. */
export function isShown({ account, person }: Session): boolean {
  const shown = document.documentElement.dataset
  return shown.account === account?.id && shown.person === person?.id
}

/** The address of an operation, with its parameters filled in. */
export function addressOf(name: Operation, { parameters = {}, query: asked = {} }: AnyInput): string {
  const path = name
    .slice(name.indexOf('/'))
    .replace(/\{(\w+)\}/g, (_, parameter: string) => encodeURIComponent(parameters[parameter] ?? ''))
  const query = searchOf(asked)
  return query === '' ? path : `${path}?${query}`
}

function searchOf(query: Readonly<Record<string, unknown>>): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '') search.append(name, String(one))
    }
  }
  return search.toString()
}

async function refusalOf(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => ({}))) as { error?: Partial<ErrorBody> }
  return new ApiError(response.status, {
    message: `The service returned status ${response.status} without an error message.`,
    code: 'internal_error',
    request_id: response.headers.get('x-router-request-id') ?? '',
    ...body.error,
  })
}

type ErrorBody = {
  readonly message: string
  readonly code: string
  readonly request_id: string
  readonly [extra: string]: unknown
}

/** A refusal by the service. Its message is written for the person who reads it. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string
  /** Numbers a page can act on, such as `required_atomic`. */
  readonly details: Readonly<Record<string, unknown>>

  constructor(status: number, body: ErrorBody) {
    super(body.message)
    this.name = 'ApiError'
    this.status = status
    this.code = body.code
    this.requestId = body.request_id
    this.details = body
  }
}

/** Whether a change may have been made although it failed: its answer was lost, or the service failed while it made it. */
export function mayBeMade(error: Error): boolean {
  return error instanceof UnreachableError || (error instanceof ApiError && error.status >= 500)
}

/** No response. It is unknown whether the service received the request. */
export class UnreachableError extends Error {
  constructor(cause: unknown) {
    super('The service did not respond. Check that it is running and that you can reach it.', { cause })
    this.name = 'UnreachableError'
  }
}
