import { chatBody } from './parts/chat-body.ts'
import { direct, type Subject, startNginx, startPassThrough, startPortkey } from './parts/comparators.ts'
import type { LoadOrder, LoadReport } from './parts/load.ts'
import { openLine } from './parts/open-line.ts'
import { median, range, round } from './parts/rounds.ts'
import { serviceSubject } from './parts/service-subject.ts'
import type { Bench } from './run.ts'

const connections = 64
const accounts = 16
const roundMs = 3_000
// A service runs for weeks. The cost of a request falls during the first tens of thousands, while the compiler optimizes: by requests and
// not by time, because the slower subject would be measured colder.
const warmUpRequests = 60_000
const warmUpMsMax = 600_000
const rounds = 5

type Sample = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly cpu: Readonly<Record<string, number>>
}

/** The same request through every subject, in alternating rounds, so that disturbances of the machine affect all of them. */
export const bufferedBench: Bench = {
  title: 'a buffered request through the service, beside nginx, a bare pass-through and Portkey',
  async run(progress, { scale }) {
    const stack = new AsyncDisposableStack()
    try {
      const { origin, load } = await openLine(stack)
      const subjects = await startSubjects(origin, stack, progress)
      for (const subject of subjects) {
        progress(`warming up: ${subject.name}`)
        await measure(load.ask, subject, warmUpMsMax, Math.ceil(warmUpRequests * scale))
      }
      const samples = new Map<Subject, Sample[]>(subjects.map((subject) => [subject, []]))
      for (let turn = 1; turn <= Math.max(1, Math.round(rounds * scale)); turn += 1) {
        for (const subject of subjects) {
          progress(`round ${turn}: ${subject.name}`)
          samples.get(subject)!.push(await measure(load.ask, subject, roundMs))
        }
      }
      return tabulate(samples)
    } finally {
      await stack.disposeAsync()
    }
  },
}

async function startSubjects(origin: string, stack: AsyncDisposableStack, progress: (line: string) => void) {
  const subjects: Subject[] = [direct(origin)]
  const starts = [
    () => startNginx(origin),
    () => startPassThrough(origin),
    () => startPortkey(origin),
    () => serviceSubject('Penny, settling elsewhere', { upstreamUrl: `${origin}/v1`, settles: false, accounts }),
    () =>
      serviceSubject(
        'Penny, with PostgreSQL on one core',
        { upstreamUrl: `${origin}/v1`, settles: false, accounts },
        0,
      ),
    () => serviceSubject('Penny, settling too', { upstreamUrl: `${origin}/v1`, settles: true, accounts }),
  ]
  for (const start of starts) {
    const subject = await start()
    if (subject === undefined) {
      progress('nginx or Portkey could not be had and is left out')
      continue
    }
    subjects.push(subject)
    stack.defer(() => subject.stop())
  }
  return subjects
}

async function measure(
  ask: (order: LoadOrder) => Promise<LoadReport>,
  subject: Subject,
  durationMs: number,
  requestsMax?: number,
): Promise<Sample> {
  const before = subject.cpu()
  const url = `${subject.baseUrl}/chat/completions`
  const report = await ask({ url, headers: subject.headers, body: chatBody(), connections, durationMs, requestsMax })
  if (report.failures > 0) throw new Error(`${subject.name} failed ${report.failures} times: ${report.failure}`)
  // Pending settlement is part of the cost of the requests, and must not slow down the next subject.
  await subject.settled()
  const after = subject.cpu()
  const { requests, seconds, latency } = report
  const perRequest = Object.entries(after).map(
    ([part, ms]) => [part, ((ms - before[part]!) * 1000) / requests] as const,
  )
  return { perSecond: requests / seconds, p50: latency.p50, p99: latency.p99, cpu: Object.fromEntries(perRequest) }
}

const parts = ['web', 'postgres', 'sign', 'settle', 'gateway', 'sandbox'] as const

function tabulate(samples: ReadonlyMap<Subject, readonly Sample[]>) {
  const of = (subject: Subject, read: (sample: Sample) => number) => median(samples.get(subject)!.map(read))
  const found = (name: string) => [...samples.keys()].find((subject) => subject.name === name)
  const bare = found('bare Node pass-through')!
  const portkey = found('Portkey gateway')
  return [...samples.keys()].map((subject) => ({
    subject: subject.name,
    per_second: Math.round(of(subject, (sample) => sample.perSecond)),
    p50_ms: round(of(subject, (sample) => sample.p50)),
    p99_ms: round(of(subject, (sample) => sample.p99)),
    ...Object.fromEntries(
      parts.map((part) => [`${part}_cpu_us`, round(of(subject, (sample) => sample.cpu[part] ?? 0))]),
    ),
    memory_mib: Math.round(subject.memoryKiB() / 1024),
    // Ratios are computed within each round: the median of the ratios, not the ratio of the medians.
    ...ratios('web_cpu/bare', samples, subject, bare, (sample) => sample.cpu.web ?? 0),
    ...(portkey && ratios('per_second/portkey', samples, subject, portkey, (sample) => sample.perSecond)),
  }))
}

function ratios(
  name: string,
  samples: ReadonlyMap<Subject, readonly Sample[]>,
  one: Subject,
  other: Subject,
  read: (sample: Sample) => number,
): Readonly<Record<string, string | number>> {
  const values = samples.get(one)!.map((sample, index) => read(sample) / read(samples.get(other)![index]!))
  return { [name]: round(median(values)), [`${name}_range`]: range(values) }
}
