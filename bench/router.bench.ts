import type { ModelRequest } from '../src/providers/model-request.ts'
import { responses } from '../src/providers/responses.ts'
import { Router } from '../src/providers/router.ts'
import type { ProviderSettings, Route } from '../src/providers/routes.ts'
import { createUpstream } from '../src/providers/upstream.ts'
import { startChild } from './parts/child.ts'
import type { MockReady } from './parts/mock-upstream.ts'
import type { Bench } from './run.ts'

const atOnce = 16
const roundsMax = 12
const requestsPerRound = 4_000
const timeouts = { connectMs: 10_000, firstByteMs: 60_000, idleMs: 60_000, totalMs: 120_000 }

const request: ModelRequest = {
  instructions: '',
  messages: [{ role: 'user', content: 'What is a penny?' }],
  turns: [],
  tools: [],
  toolChoice: 'auto',
  parallelToolCalls: undefined,
  responseFormat: { type: 'text' },
  reasoningEffort: 'low',
  temperature: undefined,
  maxOutputTokens: 100,
  promptCacheKey: 'bench',
}

type Subject = { readonly name: string; ask(): Promise<void>; close(): Promise<void> }

/** One process asks the same mock through the bare adapter and through the router, in turns, and measures its own CPU time. */
export const routerBench: Bench = {
  title: 'CPU per request of the router with one and with two providers, beside the bare adapter',
  async run(progress, { scale }) {
    const mock = await startChild<object, MockReady>(new URL('./parts/mock-upstream.ts', import.meta.url), {})
    const baseUrl = `${mock.ready.origin}/v1`
    const subjects = [bareAdapter(baseUrl), routed(baseUrl, 1), routed(baseUrl, 2)]
    const requests = Math.max(atOnce, Math.round(requestsPerRound * scale))
    const measured = new Map<string, number[]>(subjects.map(({ name }) => [name, []]))
    try {
      for (const subject of subjects) await measure(subject, requests)
      for (let round = 1; round <= roundsMax; round += 1) {
        progress(`round ${round} of ${roundsMax}`)
        // The first of a round must not always be the same.
        const order = round % 2 === 0 ? subjects : subjects.toReversed()
        for (const subject of order) measured.get(subject.name)!.push(await measure(subject, requests))
      }
    } finally {
      await Promise.all(subjects.map((subject) => subject.close()))
      await mock.stop()
    }
    const bare = median(measured.get(subjects[0]!.name)!)
    return subjects.map(({ name }) => {
      const cpu = median(measured.get(name)!)
      return { subject: name, requests: requests * roundsMax, cpu_us: Math.round(cpu), 'cpu/bare': round2(cpu / bare) }
    })
  },
}

function bareAdapter(baseUrl: string): Subject {
  const upstream = createUpstream({ id: 'bare', protocol: responses, baseUrl, timeouts, connectionsMax: atOnce * 2 })
  const { signal } = new AbortController()
  return {
    name: 'bare adapter',
    async ask() {
      for await (const _ of await upstream.respond(request, 'm', signal));
    },
    close: () => upstream.close(),
  }
}

function routed(baseUrl: string, count: number): Subject {
  const providers = Array.from({ length: count }, (_, index): ProviderSettings => {
    const rest = { headers: {}, timeouts, slowMs: undefined, concurrencyMax: atOnce * 2 }
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
  const { signal } = new AbortController()
  const onAttempt = () => ({ headers: undefined, failed: () => {} })
  return {
    name: `router, ${count === 1 ? 'one provider' : `${count} providers`}`,
    async ask() {
      for await (const _ of await router.ask({ model: 'm', request, signal, onAttempt }));
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
