import type { ChatEvent } from '../src/inference/chat-events.ts'
import { type ChatRequest, parseChatRequest } from '../src/inference/chat-request.ts'
import { toModelRequest } from '../src/providers/model-request.ts'
import { Router } from '../src/providers/router.ts'
import type { ProviderSettings, Route } from '../src/providers/routes.ts'
import { startChild } from './parts/child.ts'
import type { MockReady } from './parts/mock-upstream.ts'
import { commitBefore, extractTreeBefore } from './parts/tree-before.ts'
import type { Bench } from './run.ts'

const atOnce = 16
// Many short rounds: a busy machine then slows all subjects of a round alike.
const roundsMax = 90
const requestsPerRound = 600
const timeouts = { connectMs: 10_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 120_000 }

const chat = parseChatRequest(
  { model: 'm', messages: [{ role: 'user', content: 'What is a penny?' }], max_tokens: 100, reasoning_effort: 'low' },
  { defaultModel: 'm', ids: ['m'], maxOutputTokens: () => 1_000 },
)
const promptCacheKey = 'bench'

type Subject = { readonly name: string; ask(): Promise<void>; close(): Promise<void> }

/**
 * One process asks the same mock through the upstream as it was before providers and through the router, in turns, and measures its
 * own CPU time: from the parsed chat request to the last event.
 */
export const routerBench: Bench = {
  title: 'CPU per request of the router with one and with two providers, beside the one upstream before it',
  async run(progress, { scale }) {
    const mock = await startChild<object, MockReady>(new URL('./parts/mock-upstream.ts', import.meta.url), {})
    const baseUrl = `${mock.ready.origin}/v1`
    const subjects = [await oneUpstream(baseUrl), routed(baseUrl, 1), routed(baseUrl, 2)]
    const requests = Math.max(atOnce, Math.round(requestsPerRound * scale))
    const measured = new Map<string, number[]>(subjects.map(({ name }) => [name, []]))
    try {
      for (const subject of subjects) await measure(subject, requests)
      for (let round = 1; round <= roundsMax; round += 1) {
        if (round % 10 === 0) progress(`round ${round} of ${roundsMax}`)
        // None may always be the first of a round, or always follow the same one.
        const turned = [...subjects.slice(round % subjects.length), ...subjects.slice(0, round % subjects.length)]
        const order = round % 2 === 0 ? turned : turned.reverse()
        for (const subject of order) measured.get(subject.name)!.push(await measure(subject, requests))
      }
    } finally {
      await Promise.all(subjects.map((subject) => subject.close()))
      await mock.stop()
    }
    const before = measured.get(subjects[0]!.name)!
    return subjects.map(({ name }) => {
      const cpu = measured.get(name)!
      // Compared within each round: from one round to the next the machine may have become slower.
      const ratio = median(cpu.map((value, index) => value / before[index]!))
      return {
        subject: name,
        requests: requests * roundsMax,
        cpu_us: Math.round(median(cpu)),
        'cpu/before': round2(ratio),
      }
    })
  },
}

/** What the service called then, from the customer's request to the events of the answer. */
type RequestBefore = {
  toResponsesRequest(chat: ChatRequest, options: { upstreamModel: string; promptCacheKey: string }): object
}
type UpstreamBefore = {
  createUpstream(options: object): {
    respond(request: object, signal: AbortSignal): Promise<AsyncIterable<readonly ChatEvent[]>>
    close(): Promise<void>
  }
}

async function oneUpstream(baseUrl: string): Promise<Subject> {
  const tree = extractTreeBefore()
  const { toResponsesRequest } = await tree.load<RequestBefore>('src/inference/responses-request.ts')
  const { createUpstream } = await tree.load<UpstreamBefore>('src/inference/upstream.ts')
  tree.remove()
  const upstream = createUpstream({ baseUrl, timeouts, connectionsMax: atOnce * 2 })
  const { signal } = new AbortController()
  return {
    name: `one upstream, commit ${commitBefore}`,
    async ask() {
      const request = toResponsesRequest(chat, { upstreamModel: 'm', promptCacheKey })
      for await (const _ of await upstream.respond(request, signal));
    },
    close: () => upstream.close(),
  }
}

function routed(baseUrl: string, count: number): Subject {
  const providers = Array.from({ length: count }, (_, index): ProviderSettings => {
    const rest = {
      headers: {},
      timeouts,
      slowMs: undefined,
      concurrencyMax: atOnce * 2,
      concurrencyPerAccountMin: atOnce,
    }
    return { id: `provider-${index}`, protocol: 'responses', baseUrl, apiKey: undefined, ...rest }
  })
  const routes = providers.map(
    ({ id }): Route => ({ provider: id, model: 'm', priority: 0, weight: 1, rates: undefined }),
  )
  const router = new Router({
    table: { providers, routes: new Map([['m', routes]]), deadlineMs: timeouts.totalMs },
    clock: { now: () => performance.now(), schedule: () => () => {} },
    onFailure: (_, error) => console.error(error),
  })
  const onAttempt = () => ({ headers: undefined, failed: () => {} })
  return {
    name: `router, ${count === 1 ? 'one provider' : `${count} providers`}`,
    async ask() {
      const request = toModelRequest(chat, { promptCacheKey })
      await new Promise<void>((resolve, reject) => {
        const onEvents = (events: readonly ChatEvent[]) => {
          const last = events.at(-1)?.type
          if (last === 'finish' || last === 'failed') resolve()
          return undefined
        }
        router.ask({
          model: 'm',
          request,
          account: 'a',
          sink: { onAccepted() {}, onEvents, onRefused: reject },
          onAttempt,
        })
      })
    },
    close: () => router.close(),
  }
}

/** Microseconds of CPU time per request. */
async function measure({ ask }: Subject, requests: number): Promise<number> {
  let next = 0
  const worker = async () => {
    while (next++ < requests) await ask()
  }
  const before = process.cpuUsage()
  await Promise.all(Array.from({ length: atOnce }, worker))
  const { user, system } = process.cpuUsage(before)
  return (user + system) / requests
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]!
}

function round2(value: number): number {
  return Math.round(value * 100) / 100
}
