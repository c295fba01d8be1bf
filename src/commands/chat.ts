import { setTimeout as sleep } from 'node:timers/promises'
import { createParser } from 'eventsource-parser'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { accessOptions, accessUsage, clientWithKey, findAccess, post, type ServiceAccess } from './client.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { questionOptions, questionUsage, readQuestion } from './question.ts'
import { interruptedCode, untilStopped } from './stop-signal.ts'

const chargeReadsMax = 20
const chargeReadMs = 250

export const chatCommand: Command = {
  usage: [['penny chat WORDS …', '"-" reads the message from standard input'], ...questionUsage, ...accessUsage],
  options: { ...questionOptions, ...accessOptions },
  wordsMax: Number.POSITIVE_INFINITY,
  async run(invocation) {
    const { output } = invocation
    const question = { ...(await readQuestion(invocation)), stream: true, stream_options: { include_usage: true } }
    const access = findAccess(invocation)
    const stop = untilStopped()
    const response = await post(access, '/chat/completions', question, stop).catch((error: unknown) => {
      if (!stop.aborted) throw error
    })
    if (response === undefined) return interruptedCode
    const requestId = response.headers.get('x-router-request-id')
    const answer = await readAnswer(response, output).catch((error: unknown) => {
      if (!stop.aborted) throw error
    })
    if (answer === undefined) {
      output.write(`\n\n${dim(`cancelled · ${await costOf(access, requestId!)} · ${requestId}`, output)}\n`)
      return interruptedCode
    }
    const { usage } = answer
    if (output.json) output.write(`${JSON.stringify({ request_id: requestId, ...answer }, null, 2)}\n`)
    else {
      const cut = answer.finish_reason === 'length' ? ', cut off; raise --max-tokens to get more' : ''
      // Six decimals at most: an atomic unit is the sixth.
      const cost = usage?.cost?.toLocaleString('en', { maximumFractionDigits: 6 }) ?? '?'
      const tokens = `${usage?.prompt_tokens} tokens read, ${usage?.completion_tokens} written${cut}`
      output.write(`\n\n${dim(`${cost} USDC · ${tokens} · ${requestId}`, output)}\n`)
    }
    return 0
  },
}

/** What a cancelled answer costs. Its charge is written soon after the service notices that the connection is closed. */
async function costOf({ baseUrl, apiKey }: ServiceAccess, requestId: string): Promise<string> {
  const client = clientWithKey(new URL(baseUrl).origin, apiKey)
  for (let tries = 0; tries < chargeReadsMax; tries += 1) {
    const { status, charged } = await client.call(requestContracts.getRequest, { parameters: { id: requestId } })
    if (status !== 'held') return `${charged} USDC`
    await sleep(chargeReadMs)
  }
  return 'its cost follows'
}

type Chunk = {
  readonly choices?: readonly { readonly delta: { readonly content?: string }; readonly finish_reason: string | null }[]
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number; readonly cost: number } | null
  readonly tool_activity?: {
    readonly type: string
    readonly status: string
    readonly query?: string
    readonly url?: string
  }
  readonly error?: { readonly message: string }
}

type Answer = { content: string; finish_reason: string | null; usage: Chunk['usage'] }

async function readAnswer(response: Response, output: Output): Promise<Answer> {
  const answer: Answer = { content: '', finish_reason: null, usage: undefined }
  let failure: string | undefined
  const parser = createParser({
    onEvent({ data }) {
      if (data === '[DONE]') return
      const chunk = JSON.parse(data) as Chunk
      const [choice] = chunk.choices ?? []
      const text = choice?.delta.content ?? ''
      failure ??= chunk.error?.message
      answer.content += text
      answer.finish_reason = choice?.finish_reason ?? answer.finish_reason
      answer.usage = chunk.usage ?? answer.usage
      if (output.json) return
      if (chunk.tool_activity?.status === 'started') output.write(`${dim(describe(chunk.tool_activity), output)}\n`)
      output.write(text)
    },
  })
  const decoder = new TextDecoder()
  for await (const piece of response.body!) parser.feed(decoder.decode(piece, { stream: true }))
  if (failure !== undefined) throw new CommandError(`The answer was cut off: ${failure}`)
  return answer
}

function describe({ type, query, url }: NonNullable<Chunk['tool_activity']>): string {
  return type === 'web_search' ? `… searching for ${query}` : `… reading ${url}`
}

function dim(text: string, { color }: Output): string {
  return color ? `\x1b[2m${text}\x1b[0m` : text
}
