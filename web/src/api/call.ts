import { type Answer, type Input, type Operation, routes } from './routes.ts'

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
  return (response.status === 204 ? undefined : await response.json()) as Answer<Name>
}

type Rest<Name extends Operation> =
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
  const [method] = routes[name]
  const { body } = input
  const account = isOfShownAccount ? shownAccount() : undefined
  const response = await fetch(addressOf(name, input), {
    method,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(account !== undefined && method !== 'GET' && { 'x-router-account': account }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal !== undefined && { signal }),
  }).catch((cause: unknown) => {
    if (signal?.aborted && signal.reason.name !== 'TimeoutError') throw cause
    throw new UnreachableError(cause)
  })
  if (!response.ok) throw await refusalOf(response)
  return response
}

/**
 * The account that this page shows, also while its session has ended; sent with every change. All windows of a browser share a session:
 * after a switch in another window the service refuses changes from this one.
 */
export function shownAccount(): string | undefined {
  return document.documentElement.dataset.account
}

/** Undefined after a sign-out. */
export function showAccount(accountId: string | undefined): void {
  if (accountId === undefined) delete document.documentElement.dataset.account
  else document.documentElement.dataset.account = accountId
}

/** The address of an operation, with its parameters filled in. */
export function addressOf(name: Operation, { parameters = {}, query: asked = {} }: AnyInput): string {
  const path = routes[name][1].replace(/\{(\w+)\}/g, (_, parameter: string) =>
    encodeURIComponent(parameters[parameter] ?? ''),
  )
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

/** No response. It is unknown whether the service received the request. */
export class UnreachableError extends Error {
  constructor(cause: unknown) {
    super('The service did not respond. Check that it is running and that you can reach it.', { cause })
    this.name = 'UnreachableError'
  }
}
