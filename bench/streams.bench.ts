import { chatBody } from './parts/chat-body.ts'
import { direct, type Subject, startPassThrough } from './parts/comparators.ts'
import type { LoadReport } from './parts/load.ts'
import { type Load, openLine } from './parts/open-line.ts'
import { median, range, round } from './parts/rounds.ts'
import { serviceSubject } from './parts/service-subject.ts'
import type { Bench } from './run.ts'

type Row = Readonly<Record<string, string | number>>

/** A word every 5 ms, eight of them, of a model that takes so long to begin: what one client at a time sees. */
const modelsMs = [0, 50, 200]
const alonePace = (modelMs: number) => `/paced/8/5/${modelMs}/v1`
const aloneRequests = 500
/** As in `buffered`: the cost of a request falls while the compiler optimizes. */
const warmUpRequests = 60_000
/** A word every 20 ms, fifty of them, on so many connections: what a core can relay. */
const relayPace = '/paced/50/20/v1'
const relayConnections = 128
const relayRequests = 1_500
/** A word a second for half a minute, on as many connections as shall be open at once. */
const openWords = 30
const openStreams = 5_000
// All of them are open for two thirds of their time.
const rampMs = 10_000
const stalledMs = 5_000
const rounds = 5

/** Streams: what they are delayed by, how many fit, and what each event costs. Compared with the same mock without anything between. */
export const streamsBench: Bench = {
  title: 'streams: added time to the first token and between tokens, events per core, open streams and their memory',
  async run(progress, { scale }) {
    const stack = new AsyncDisposableStack()
    try {
      const { origin, load } = await openLine(stack)
      const rows: Row[] = []
      for (const modelMs of modelsMs) rows.push(...(await measureAlone(load, origin, modelMs, { scale, progress })))
      rows.push(...(await measureRelay(load, origin, scale, progress)))
      rows.push(await measureOpen(load, origin, Math.max(50, Math.round(openStreams * scale)), progress))
      return rows
    } finally {
      await stack.disposeAsync()
    }
  },
}

/** The subjects, behind which the mock paces its words. The paths of those that pass requests on carry the pace. */
async function startSubjects(origin: string, pace: string, stack: AsyncDisposableStack): Promise<readonly Subject[]> {
  const bare = await startPassThrough(origin)
  stack.defer(() => bare.stop())
  const service = await serviceSubject('Penny', { upstreamUrl: origin + pace, settles: false, accounts: 16 })
  stack.defer(() => service.stop())
  const paced = (subject: Subject) => ({ ...subject, baseUrl: subject.baseUrl.replace(/\/v1$/, pace) })
  return [paced(direct(origin)), paced(bare), service]
}

type Run = { readonly scale: number; readonly progress: (line: string) => void }

async function measureAlone(load: Load, origin: string, modelMs: number, { scale, progress }: Run) {
  await using stack = new AsyncDisposableStack()
  const subjects = await startSubjects(origin, alonePace(modelMs), stack)
  await warmUp(load, subjects, scale, progress)
  const reports = new Map<Subject, LoadReport[]>(subjects.map((subject) => [subject, []]))
  for (let turn = 0; turn <= rounds; turn += 1) {
    progress(`one client at a time, a model of ${modelMs} ms, round ${turn}`)
    for (const subject of subjects) {
      const report = await ask(load, subject, 1, Math.ceil((aloneRequests * scale) / rounds))
      if (turn > 0) reports.get(subject)!.push(report)
    }
  }
  const [base] = subjects
  const of = (subject: Subject, read: (report: LoadReport) => number) => median(reports.get(subject)!.map(read))
  const added = (subject: Subject, read: (report: LoadReport) => number) => of(subject, read) - of(base!, read)
  const addedFirst = (subject: Subject) =>
    reports.get(subject)!.map(({ firstByte }, turn) => firstByte.p50 - reports.get(base!)![turn]!.firstByte.p50)
  return subjects.map((subject) => ({
    measure: 'one client',
    model_ms: modelMs,
    subject: subject.name,
    first_token_p50_ms: round(of(subject, ({ firstByte }) => firstByte.p50)),
    first_token_p99_ms: round(of(subject, ({ firstByte }) => firstByte.p99)),
    added_first_token_p50_ms: round(added(subject, ({ firstByte }) => firstByte.p50)),
    added_range: range(addedFirst(subject)),
    added_first_token_p99_ms: round(added(subject, ({ firstByte }) => firstByte.p99)),
    added_gap_p50_ms: round(added(subject, ({ gap }) => gap.p50)),
    added_gap_p99_ms: round(added(subject, ({ gap }) => gap.p99)),
  }))
}

/** Each subject by as many requests, 256 at a time: one after another they would take minutes. */
async function warmUp(load: Load, subjects: readonly Subject[], scale: number, progress: (line: string) => void) {
  for (const subject of subjects) {
    progress(`warming up: ${subject.name}`)
    await ask(load, subject, 256, Math.ceil(warmUpRequests * scale))
  }
}

async function measureRelay(load: Load, origin: string, scale: number, progress: (line: string) => void) {
  await using stack = new AsyncDisposableStack()
  const [, ...subjects] = await startSubjects(origin, relayPace, stack)
  await warmUp(load, subjects, scale / 4, progress)
  const samples = new Map<Subject, number[]>(subjects.map((subject) => [subject, []]))
  for (let turn = 0; turn <= rounds; turn += 1) {
    progress(`${relayConnections} streams, round ${turn}`)
    for (const subject of subjects) {
      const before = subject.cpu().web!
      const report = await ask(load, subject, relayConnections, Math.ceil((relayRequests * scale) / rounds))
      // The role and the end are events too, but it is the words that are counted.
      if (turn > 0) samples.get(subject)!.push((report.requests * 50 * 1000) / (subject.cpu().web! - before))
    }
  }
  return subjects.map((subject) => ({
    measure: `${relayConnections} streams, 50 words/s each`,
    subject: subject.name,
    events_per_core_second: Math.round(median(samples.get(subject)!)),
    range: range(samples.get(subject)!),
  }))
}

/** So many streams at once, a word a second each: how long the longest silence of any of them was, and what they took. */
async function measureOpen(load: Load, origin: string, count: number, progress: (line: string) => void): Promise<Row> {
  await using stack = new AsyncDisposableStack()
  const pace = `/paced/${openWords}/1000/v1`
  const service = await serviceSubject('Penny', { upstreamUrl: origin + pace, settles: false, accounts: 16 })
  stack.defer(() => service.stop())
  // What the first requests load and compile is not the streams'.
  await ask(load, { ...service, baseUrl: service.baseUrl }, 8, 8)
  const memoryBefore = service.memoryKiB()
  const cpuBefore = service.cpu().web!
  progress(`${count} open streams`)
  let memoryMax = memoryBefore
  const watch = setInterval(() => {
    memoryMax = Math.max(memoryMax, service.memoryKiB())
  }, 500)
  const report = await ask(load, service, count, count, rampMs)
  clearInterval(watch)
  return {
    measure: 'open streams, a word a second',
    subject: service.name,
    open: count,
    longest_silence_ms: Math.round(report.gap.max),
    stalled: report.gap.max > stalledMs ? 'yes' : 'none',
    kib_per_stream: round((memoryMax - memoryBefore) / count),
    cores_used: round((service.cpu().web! - cpuBefore) / 1000 / report.seconds),
  }
}

async function ask(
  load: Load,
  subject: Subject,
  connections: number,
  requestsMax: number,
  rampMs?: number,
): Promise<LoadReport> {
  const report = await load.ask({
    url: `${subject.baseUrl}/chat/completions`,
    headers: subject.headers,
    body: chatBody({ stream: true }),
    connections,
    rampMs,
    durationMs: 600_000,
    requestsMax,
  })
  if (report.failures > 0) throw new Error(`${subject.name} failed ${report.failures} times: ${report.failure}`)
  return report
}
