import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { beChild } from './child.ts'
import { pacedModel } from './paced-model.ts'

/**
 * The upstream of all comparisons. Answers with a given number of words, in either protocol: chat completions for pass-throughs,
 * Responses for us. Everything possible is rendered before the first request.
 */
export type MockReady = { readonly origin: string }

/**
 * How an answer is paced. `/v1` answers at once, `/paced/<words>/<ms>/v1` a word at a time, `/paced/<words>/<ms>/<ms>/v1` also after a
 * time before the first one, `/mixed/v1` by its model.
 */
type Pace = { readonly words: number; readonly everyMs: number; readonly firstMs: number }

const wordsAtOnce = 16
const usage = { prompt_tokens: 24, completion_tokens: wordsAtOnce, total_tokens: 24 + wordsAtOnce }

beChild<object, MockReady, never, never>(async () => {
  const server = createServer({ keepAliveTimeout: 600_000, noDelay: true }, (incoming, outgoing) => {
    let isPaced = false
    if (incoming.url!.startsWith('/mixed/')) {
      incoming.on('data', (piece: Buffer) => {
        isPaced ||= piece.includes(pacedModel)
      })
    } else incoming.resume()
    incoming.once('end', () => {
      if (isPaced) incoming.url = `/paced/200/100${incoming.url}`
      void answer(incoming, outgoing)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { ready: { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` } }
})

const json = { 'content-type': 'application/json' }
const events = { 'content-type': 'text/event-stream; charset=utf-8' }

async function answer({ url = '', headers }: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const [, words, everyMs, firstMs = 0] = /^\/paced\/(\d+)\/(\d+)\/(?:(\d+)\/)?/.exec(url) ?? []
  const pace =
    words === undefined ? undefined : { words: Number(words), everyMs: Number(everyMs), firstMs: Number(firstMs) }
  if (pace !== undefined && pace.firstMs > 0) await sleep(pace.firstMs)
  if (url.endsWith('/responses')) {
    outgoing.writeHead(200, events)
    if (pace === undefined) outgoing.end(wholeResponse)
    else write(outgoing, pace, { head: responseHead, word: responseWord, tail: responseTail(pace.words) })
  } else if (pace !== undefined || headers['x-bench-stream'] !== undefined) {
    outgoing.writeHead(200, events)
    write(outgoing, pace ?? { words: wordsAtOnce, everyMs: 0, firstMs: 0 }, {
      head: chatHead,
      word: chatWord,
      tail: chatTail,
    })
  } else {
    outgoing.writeHead(200, { ...json, 'content-length': wholeCompletion.length })
    outgoing.end(wholeCompletion)
  }
}

type Frames = { readonly head: string; readonly word: string; readonly tail: string }

function write(outgoing: ServerResponse, { words, everyMs }: Pace, { head, word, tail }: Frames): void {
  if (everyMs === 0) {
    outgoing.end(head + word.repeat(words) + tail)
    return
  }
  outgoing.write(head + word)
  let written = 1
  const timer = setInterval(() => {
    written += 1
    if (written < words) outgoing.write(word)
    else {
      clearInterval(timer)
      outgoing.end(word + tail)
    }
  }, everyMs)
  outgoing.once('close', () => clearInterval(timer))
}

function chatFrame(choice: object): string {
  const shared = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'gpt-5.6-terra' }
  return `data: ${JSON.stringify({ ...shared, choices: [{ index: 0, finish_reason: null, ...choice }] })}\n\n`
}

const chatHead = chatFrame({ delta: { role: 'assistant', content: '' } })
const chatWord = chatFrame({ delta: { content: ' penny' } })
const chatTail = `${chatFrame({ delta: {}, finish_reason: 'stop' })}data: [DONE]\n\n`
const wholeCompletion = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: 'gpt-5.6-terra',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: ' penny'.repeat(wordsAtOnce), refusal: null },
        finish_reason: 'stop',
      },
    ],
    usage,
  }),
)

function responseFrame(type: string, fields: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: 1, ...fields })}\n\n`
}

const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
const response = { id: 'resp_1', object: 'response', created_at: 1, status: 'in_progress', model: 'gpt-5.6-terra' }
const message = { id: 'msg_1', type: 'message', role: 'assistant' }
const responseHead =
  responseFrame('response.created', { response }) +
  responseFrame('response.in_progress', { response }) +
  responseFrame('response.output_item.added', {
    output_index: 0,
    item: { ...message, status: 'in_progress', content: [] },
  }) +
  responseFrame('response.content_part.added', {
    ...place,
    part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
  })
const responseWord = responseFrame('response.output_text.delta', { ...place, delta: ' penny', logprobs: [] })

function responseTail(words: number): string {
  const text = ' penny'.repeat(words)
  const part = { type: 'output_text', text, annotations: [], logprobs: [] }
  const item = { ...message, status: 'completed', content: [part] }
  const used = { input_tokens: 24, output_tokens: words, total_tokens: 24 + words }
  return (
    responseFrame('response.output_text.done', { ...place, text, logprobs: [] }) +
    responseFrame('response.content_part.done', { ...place, part }) +
    responseFrame('response.output_item.done', { output_index: 0, item }) +
    responseFrame('response.completed', {
      response: { ...response, status: 'completed', output: [item], usage: used },
    })
  )
}

const wholeResponse = Buffer.from(responseHead + responseWord.repeat(wordsAtOnce) + responseTail(wordsAtOnce))
