import createFetchClient from 'openapi-fetch'
import { createClient } from './generated/hey-api/client/index.ts'
import { createChatCompletion, getReceipt, listModels } from './generated/hey-api/index.ts'
import type { components, paths } from './generated/openapi-typescript.ts'
import {
  everyParameter,
  otherForms,
  type Read,
  readCompletion,
  readError,
  readEvent,
  readModel,
  readPaymentRequired,
  readReceipt,
} from './read.ts'

// A customer's program over the clients that two generators make of openapi.json. check.ts compiles it; openapi-clients.test.ts runs
// it. What one generator's types read, the other's types fit.

type CompletionEvent = components['schemas']['CompletionEvent']
type Seen = { readonly read: Read; readonly events: readonly Read[]; readonly error: string; readonly receipt: string }

const wrongKey = 'penny_0000'

/** By the types of openapi-typescript. */
export async function useOpenApiFetch(baseUrl: string, apiKey: string): Promise<Seen> {
  const client = createFetchClient<paths>({ baseUrl, headers: { authorization: `Bearer ${apiKey}` } })
  const answer = await client.POST('/v1/chat/completions', {
    params: { header: { 'idempotency-key': crypto.randomUUID(), 'x-stainless-retry-count': '0' } },
    body: everyParameter,
  })
  if (answer.error !== undefined) throw new Error(readError(answer.error))
  // The route answers with two types: the client cannot know which.
  if (!('object' in answer.data) || answer.data.object !== 'chat.completion') throw new Error('no completion')
  const models = await client.GET('/v1/models')
  for (const model of models.data?.data ?? []) readModel(model)
  const streamed = await client.POST('/v1/chat/completions', { body: otherForms[1]!, parseAs: 'stream' })
  const refused = await client.POST('/v1/chat/completions', {
    body: everyParameter,
    headers: { authorization: `Bearer ${wrongKey}` },
  })
  const id = answer.response.headers.get('x-router-request-id') ?? ''
  const receipt = await client.GET('/api/receipts/{id}', { params: { path: { id } } })
  return {
    read: readCompletion(answer.data),
    events: streamed.data ? await readStream(streamed.data) : [],
    error: refused.error ? readError(refused.error) : '',
    receipt: receipt.data ? readReceipt(receipt.data) : '',
  }
}

async function readStream(stream: ReadableStream<Uint8Array>): Promise<readonly Read[]> {
  const lines = (await new Response(stream).text()).split('\n').filter((line) => line.startsWith('data: {'))
  return lines.map((line) => {
    const event: CompletionEvent = JSON.parse(line.slice('data: '.length))
    return readEvent(event)
  })
}

/** By the client of @hey-api/openapi-ts. */
export async function useHeyApi(baseUrl: string, apiKey: string): Promise<Seen> {
  const client = createClient({ baseUrl, auth: apiKey })
  const headers = { 'idempotency-key': crypto.randomUUID(), 'x-stainless-retry-count': '0' }
  const answer = await createChatCompletion({ client, headers, body: everyParameter })
  if (answer.error !== undefined) throw new Error(readError(answer.error))
  const models = await listModels({ client })
  for (const model of models.data?.data ?? []) readModel(model)
  const { stream } = await client.sse.post<{ 200: CompletionEvent }>({
    url: '/v1/chat/completions',
    body: otherForms[1],
    headers: { 'content-type': 'application/json' },
    security: [{ scheme: 'bearer', type: 'http' }],
  })
  const events: Read[] = []
  for await (const event of stream) if (typeof event === 'object') events.push(readEvent(event))
  const refused = await createChatCompletion({ client, auth: wrongKey, body: everyParameter })
  const id = answer.response?.headers.get('x-router-request-id') ?? ''
  const receipt = await getReceipt({ client, path: { id } })
  return {
    read: readCompletion(answer.data),
    events,
    error: refused.error === undefined ? '' : readError(refused.error),
    receipt: receipt.data === undefined ? '' : readReceipt(receipt.data),
  }
}

/** The headers of an answer and of an error, with the bodies that go with the statuses. */
type Answers = paths['/v1/chat/completions']['post']['responses']
export function readHeaders(headers: Answers[200]['headers'], errors: Answers[402]['headers']): readonly bigint[] {
  const held: string = headers['x-router-held-usdc']
  const charged: string | undefined = headers['x-router-charged-usdc']
  const replayed: 'true' | undefined = headers['idempotent-replayed']
  const ids: string[] = [headers['x-router-request-id'], headers['x-request-id'], errors['x-router-request-id']]
  const texts: (string | undefined)[] = [headers['payment-response'], errors['payment-required'], replayed, ...ids]
  const retry: 'true' | 'false' | undefined = errors['x-should-retry']
  return [BigInt(held), BigInt(charged ?? 0), BigInt(texts.length), BigInt(retry === 'true')]
}
export function readRetry({ 'retry-after': seconds, 'retry-after-ms': ms }: Answers[429]['headers']): number {
  return Number(ms ?? Number(seconds) * 1000)
}
export const readDue: (body: Answers[402]['content']['application/json']) => bigint = readPaymentRequired

/** No operation answers with something that a generator cannot name. */
type Bodies = {
  [Path in keyof paths]: {
    [Method in keyof paths[Path]]: paths[Path][Method] extends { responses: infer All } ? BodyOf<All> : never
  }[keyof paths[Path]]
}
type BodyOf<All> = {
  [Status in keyof All]: All[Status] extends { content: infer Types } ? Types[keyof Types] : never
}[keyof All]
type Unnamed = { [Path in keyof Bodies]: unknown extends Bodies[Path] ? Path : never }[keyof Bodies]
export const unnamed: Unnamed[] = []
export const isNeverUnnamed: [Unnamed] extends [never] ? true : Unnamed = true
