import { Agent, type Dispatcher } from 'undici'
import { ProviderError } from './provider.ts'

export type ProviderCall = {
  readonly provider: string
  readonly url: URL
  readonly headers?: Readonly<Record<string, string>>
  /** Sent as JSON in a POST. Without a body the request is a GET. */
  readonly body?: unknown
}

/** Calls a provider and parses its JSON response. Throws `ProviderError`. */
export type Ask = (question: ProviderCall, signal: AbortSignal) => Promise<unknown>

export type AskLimits = { readonly connectMsMax: number; readonly totalMsMax: number; readonly bytesMax: number }

export const askLimits: AskLimits = { connectMsMax: 3_000, totalMsMax: 8_000, bytesMax: 2 * 1024 * 1024 }
/** To each provider. */
export const connectionsMax = 32

/** Keep-alive connections to the operator's providers. Redirects are not followed: they would carry the API key to another host. */
export function createAsk(limits: AskLimits = askLimits): { readonly ask: Ask; close(): Promise<void> } {
  const agent = new Agent({
    connections: connectionsMax,
    connect: { timeout: limits.connectMsMax },
    headersTimeout: limits.totalMsMax,
    bodyTimeout: limits.totalMsMax,
    maxResponseSize: limits.bytesMax,
    pipelining: 1,
  })
  return { ask: (question, signal) => askOnce(agent, question, limits, signal), close: () => agent.destroy() }
}

async function askOnce(agent: Agent, question: ProviderCall, limits: AskLimits, signal: AbortSignal): Promise<unknown> {
  const { provider, url, headers, body } = question
  const both = AbortSignal.any([signal, AbortSignal.timeout(limits.totalMsMax)])
  try {
    const answer = await agent.request({
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        accept: 'application/json',
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: both,
    })
    const text = await answer.body.text()
    if (answer.statusCode !== 200) throw refusal(provider, answer)
    return parse(provider, text)
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof ProviderError) throw error
    throw new ProviderError(`${provider} request failed: ${(error as Error).message}`, true, undefined, error)
  }
}

function parse(provider: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new ProviderError(`${provider} did not return JSON`, true, undefined, error)
  }
}

/** The message leaves out the body: some providers repeat the API key in it. */
function refusal(provider: string, { statusCode, headers }: Dispatcher.ResponseData): ProviderError {
  const temporary = statusCode === 429 || statusCode === 408 || statusCode >= 500
  const seconds = headers['retry-after']
  const retryAfterMs = typeof seconds === 'string' && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1000 : undefined
  return new ProviderError(`${provider} answered ${statusCode}`, temporary, retryAfterMs)
}
