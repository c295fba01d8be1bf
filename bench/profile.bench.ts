import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chatBody } from './parts/chat-body.ts'
import { openLine } from './parts/open-line.ts'
import { round } from './parts/rounds.ts'
import { startServiceProcess } from './parts/service-process.ts'
import type { Bench } from './run.ts'

const warmUpRequests = 4_000
const requests = 12_000
const rowsMax = 40

/** Where the web process spends its time, function by function, under buffered and under streamed requests. */
export const profileBench: Bench = {
  title: 'where the web process spends its time, by function',
  async run(progress, { scale }) {
    const rows = []
    for (const kind of ['buffered', 'streamed'] as const) {
      progress(`profiling ${kind} requests`)
      rows.push(...(await profile(kind, scale)))
    }
    return rows
  },
}

async function profile(kind: 'buffered' | 'streamed', scale: number) {
  const stack = new AsyncDisposableStack()
  const folder = mkdtempSync(join(tmpdir(), 'penny-profile-'))
  stack.defer(() => rmSync(folder, { recursive: true, force: true }))
  try {
    const { origin, load } = await openLine(stack)
    const service = await startServiceProcess({
      upstreamUrl: kind === 'buffered' ? `${origin}/v1` : `${origin}/paced/20/5/v1`,
      settles: false,
      accounts: 16,
      nodeOptions: ['--cpu-prof', '--cpu-prof-interval=250', `--cpu-prof-dir=${folder}`],
    })
    const order = {
      url: `${service.baseUrl}/chat/completions`,
      headers: service.apiKeys.map((key) => ({ authorization: `Bearer ${key}` })),
      body: chatBody({ stream: kind === 'streamed' }),
      connections: 64,
      durationMs: 600_000,
    }
    const count = Math.round((requests + warmUpRequests) * scale)
    const report = await load.ask({ ...order, requestsMax: count })
    if (report.failures > 0) throw new Error(String(report.failure))
    await service.stop()
    return tabulate(kind, largestProfile(folder), count)
  } finally {
    await stack.disposeAsync()
  }
}

type Profile = {
  readonly nodes: readonly {
    readonly id: number
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
  }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

/** Threads write one each; the main thread's is the largest by far. */
function largestProfile(folder: string): Profile {
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'))
  return JSON.parse(texts.sort((one, other) => other.length - one.length)[0]!) as Profile
}

function tabulate(kind: string, { nodes, samples, timeDeltas }: Profile, count: number) {
  const places = new Map(nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]))
  const selfUs = new Map<string, number>()
  for (const [index, id] of samples.entries()) {
    const place = places.get(id)!
    selfUs.set(place, (selfUs.get(place) ?? 0) + timeDeltas[index]!)
  }
  for (const idle of ['(idle)', '(root)', '(program)']) if (idle !== '(program)') selfUs.delete(idle)
  const total = [...selfUs.values()].reduce((sum, us) => sum + us, 0)
  return [...selfUs]
    .sort(([, one], [, other]) => other - one)
    .slice(0, rowsMax)
    .map(([place, us]) => ({
      requests: kind,
      place,
      us_per_request: round(us / count),
      share: `${round((us / total) * 100)} %`,
    }))
}

function placeOf({ functionName, url, lineNumber }: Profile['nodes'][number]['callFrame']): string {
  const file = url.replace(/^.*\/(?=node_modules\/)/, '').replace(/^file:.*\/(?=src\/)/, '')
  return file === '' ? functionName : `${functionName || '(anonymous)'} ${file}:${lineNumber + 1}`
}
