import { OverloadedError } from '../errors.ts'
import type { ConcurrencyLimit } from '../fairness/concurrency-limit.ts'
import { retry } from './retry.ts'

export type BatchOptions<Call, Result> = {
  /** Runs the calls as one transaction and returns the results in order. Must be idempotent: see `isOutcomeUnknown`. */
  readonly run: (calls: readonly Call[]) => Promise<readonly Result[]>
  /** True when a failed run may have been committed anyway. Then the same calls are run again. */
  readonly isOutcomeUnknown: (error: unknown) => boolean
  readonly sizeMax?: number
  readonly queuedMax?: number
  /** Calls that arrive within this time after a batch share the next one. For calls whose result is not awaited. */
  readonly restMs?: number
  /** 0 or 1. Calls of different lanes touch different rows, so batches of both can be committed concurrently. */
  readonly laneOf?: (call: Call) => number
  /** Keeps calls that lock the same rows from delaying all others. */
  readonly groups?: Groups<Call, Result> | undefined
}

/** Calls of one group lock the same rows: those of one account. */
export type Groups<Call, Result> = {
  readonly of: (call: Call) => string
  /** True when a run timed out waiting for a group's rows, which another session had locked. Nothing was written. */
  readonly isLocked: (error: unknown) => boolean
  /** Runs only the calls whose group is not locked by another session, without waiting. The results of the others are undefined. */
  readonly runUnlocked: (calls: readonly Call[]) => Promise<readonly ({ readonly result: Result } | undefined)[]>
  /** Bounds how many locked groups wait for their locks concurrently: each occupies a connection. */
  readonly lockedLimit: ConcurrencyLimit
  /** The most calls of one locked group that may wait; more are refused. */
  readonly queuedMax: number
}

// Each commit has a fixed cost in the database, however few calls share it. Two concurrent batches pay off only from this queue
// length on.
const secondBatchCallsMin = 128

/** A group stays aside for this long after it was last found locked. */
const setAsideMs = 10_000
const asideGroupsMax = 10_000

/**
 * Group commit. Calls that arrive while a batch is being committed form the next batch, so under load hundreds of requests share
 * one durable commit. An idle service commits immediately: batching adds no latency. When the queue is long and calls have lanes,
 * two batches are committed concurrently.
 *
 * A batch that times out on a lock is run again without the locked groups. These are put aside: each gets its own batches, retried
 * until they succeed, and its later calls follow it there. One account can therefore delay a lane once, by the lock timeout, and
 * not again while it stays locked.
 */
export class BatchQueue<Call, Result> {
  readonly #options: Required<Omit<BatchOptions<Call, Result>, 'groups'>>
  readonly #groups: Groups<Call, Result> | undefined
  readonly #lanes: readonly Lane<Call, Result>[] = [
    { queued: [], busy: false },
    { queued: [], busy: false },
  ]
  readonly #aside = new Map<string, AsideGroup<Call, Result>>()
  #scheduled = false
  #restUntilMs = 0
  #idle: PromiseWithResolvers<void> | undefined
  #stopped = false

  constructor({ groups, ...options }: BatchOptions<Call, Result>) {
    this.#options = { sizeMax: 512, queuedMax: 16_384, restMs: 0, laneOf: () => 0, ...options }
    this.#groups = groups
  }

  add(call: Call): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>()
    const entry = { call, resolve, reject }
    const aside = this.#asideOf(call)
    if (aside !== undefined) this.#addAside(aside, [entry])
    else if (this.#queuedInLanes >= this.#options.queuedMax) reject(new OverloadedError())
    else {
      this.#lanes[this.#options.laneOf(call)]!.queued.push(entry)
      this.#schedule()
    }
    return promise
  }

  /** Number of calls that wait for a batch. */
  get queued(): number {
    let sum = this.#queuedInLanes
    for (const { queued } of this.#aside.values()) sum += queued.length
    return sum
  }

  /** Resolves when nothing is queued or in flight. */
  drained(): Promise<void> {
    if (this.#isIdle()) return Promise.resolve()
    this.#idle ??= Promise.withResolvers<void>()
    return this.#idle.promise
  }

  /** Stops retrying calls that the database does not answer. For shutdown: another node, or the next start, recovers them. */
  stop(): void {
    this.#stopped = true
  }

  get #queuedInLanes(): number {
    return this.#lanes.reduce((sum, { queued }) => sum + queued.length, 0)
  }

  #isIdle(): boolean {
    const isServed = ({ queued, busy }: Lane<Call, Result>) => queued.length === 0 && !busy
    return this.#lanes.every(isServed) && this.#aside.values().every(isServed)
  }

  #noticeIdle(): void {
    if (!this.#isIdle()) return
    this.#idle?.resolve()
    this.#idle = undefined
  }

  // Waits one turn of the event loop, to gather requests that were read from their sockets together.
  #schedule(): void {
    if (this.#scheduled || this.#lanesToTake().length === 0) return
    this.#scheduled = true
    const begin = () => {
      this.#scheduled = false
      this.#begin(this.#lanesToTake())
      this.#schedule()
    }
    const restMs = this.#restUntilMs - performance.now()
    if (restMs > 0 && !this.#stopped) setTimeout(begin, restMs)
    else setImmediate(begin)
  }

  /** The lanes that the next batch takes its calls from: all of them, or one when the queue is long. Empty: it is not time yet. */
  #lanesToTake(): readonly Lane<Call, Result>[] {
    const isBusy = this.#lanes.some(({ busy }) => busy)
    if (!isBusy && this.#queuedInLanes < secondBatchCallsMin)
      return this.#lanes.filter(({ queued }) => queued.length > 0)
    const least = isBusy ? secondBatchCallsMin / 2 : 1
    return this.#lanes.filter(({ queued, busy }) => !busy && queued.length >= least).slice(0, 1)
  }

  #begin(lanes: readonly Lane<Call, Result>[]): void {
    const entries: Entry<Call, Result>[] = []
    for (const lane of lanes) {
      entries.push(...lane.queued.splice(0, this.#options.sizeMax - entries.length))
      lane.busy = true
    }
    // Since the lanes were chosen, their calls may have been put aside.
    const committed = entries.length === 0 ? Promise.resolve() : this.#commit(entries)
    committed.finally(() => {
      for (const lane of lanes) lane.busy = false
      this.#restUntilMs = performance.now() + this.#options.restMs
      this.#schedule()
      this.#noticeIdle()
    })
  }

  async #commit(entries: readonly Entry<Call, Result>[], aside?: AsideGroup<Call, Result>): Promise<void> {
    const calls = entries.map((entry) => entry.call)
    try {
      const results = aside === undefined ? await this.#runInLane(calls) : await this.#runAside(aside, calls)
      for (const [index, entry] of entries.entries()) entry.resolve(results[index] as Result)
    } catch (error) {
      if (aside === undefined && this.#isLocked(error) && !this.#stopped) return this.#commitUnlocked(entries)
      if (entries.length === 1 || this.#options.isOutcomeUnknown(error) || this.#stopped) {
        for (const entry of entries) entry.reject(error)
        return
      }
      // A bad row must fail alone: run the calls one by one.
      for (const entry of entries) await this.#commit([entry], aside)
    }
  }

  #runInLane(calls: readonly Call[]): Promise<readonly Result[]> {
    const isRepeated = (error: unknown) => !this.#isLocked(error) && this.#options.isOutcomeUnknown(error)
    return this.#runRepeatedly(() => this.#options.run(calls), isRepeated)
  }

  #runAside(aside: AsideGroup<Call, Result>, calls: readonly Call[]): Promise<readonly Result[]> {
    const run = () => this.#groups!.lockedLimit.run(() => this.#options.run(calls))
    return this.#runRepeatedly(run, (error) => {
      if (this.#isLocked(error)) this.#markLocked(aside)
      return this.#isLocked(error) || this.#options.isOutcomeUnknown(error)
    })
  }

  #isLocked(error: unknown): boolean {
    return this.#groups?.isLocked(error) === true
  }

  /** Commits the calls that need not wait for a lock, and puts the others aside. */
  async #commitUnlocked(entries: readonly Entry<Call, Result>[]): Promise<void> {
    const groups = this.#groups!
    const calls = entries.map((entry) => entry.call)
    let answers: readonly ({ readonly result: Result } | undefined)[] = []
    const isOneGroup = new Set(calls.map(groups.of)).size === 1
    try {
      if (!isOneGroup)
        answers = await this.#runRepeatedly(() => groups.runUnlocked(calls), this.#options.isOutcomeUnknown)
    } catch (error) {
      if (this.#stopped) {
        for (const entry of entries) entry.reject(error)
        return
      }
      // One row is bad. Once aside, each group fails or succeeds separately.
    }
    const locked: Entry<Call, Result>[] = []
    for (const [index, entry] of entries.entries()) {
      const answer = answers[index]
      if (answer === undefined) locked.push(entry)
      else entry.resolve(answer.result)
    }
    for (const [name, members] of Map.groupBy(locked, ({ call }) => groups.of(call))) this.#setAside(name, members)
  }

  #asideOf(call: Call): AsideGroup<Call, Result> | undefined {
    if (this.#groups === undefined || this.#aside.size === 0) return undefined
    const name = this.#groups.of(call)
    const aside = this.#aside.get(name)
    if (aside === undefined || aside.busy || aside.untilMs > performance.now()) return aside
    this.#aside.delete(name)
    return undefined
  }

  #setAside(name: string, entries: readonly Entry<Call, Result>[]): void {
    if (this.#aside.size >= asideGroupsMax) this.#forgetServed()
    const aside = this.#aside.get(name) ?? { queued: [], busy: false, untilMs: 0 }
    this.#aside.set(name, aside)
    this.#markLocked(aside)
    // The group's other calls would delay their lane again.
    const isMember = (entry: Entry<Call, Result>) => this.#groups!.of(entry.call) === name
    const waiting = this.#lanes.flatMap((lane) => {
      const members = lane.queued.filter(isMember)
      if (members.length > 0) lane.queued = lane.queued.filter((entry) => !isMember(entry))
      return members
    })
    this.#addAside(aside, [...entries, ...waiting])
  }

  #markLocked(aside: AsideGroup<Call, Result>): void {
    aside.untilMs = performance.now() + setAsideMs
  }

  #forgetServed(): void {
    const nowMs = performance.now()
    for (const [name, { busy, untilMs }] of this.#aside) if (!busy && untilMs <= nowMs) this.#aside.delete(name)
  }

  #addAside(aside: AsideGroup<Call, Result>, entries: readonly Entry<Call, Result>[]): void {
    for (const entry of entries) {
      if (aside.queued.length < this.#groups!.queuedMax) aside.queued.push(entry)
      else entry.reject(new OverloadedError())
    }
    if (aside.busy) return
    aside.busy = true
    void this.#serveAside(aside).finally(() => {
      aside.busy = false
      this.#noticeIdle()
    })
  }

  async #serveAside(aside: AsideGroup<Call, Result>): Promise<void> {
    while (aside.queued.length > 0) {
      await this.#commit(aside.queued.splice(0, this.#options.sizeMax), aside)
    }
  }

  // Retry without limit: the outcome is unknown until the database answers. The client may give up; the call does not.
  #runRepeatedly<Answer>(run: () => Promise<Answer>, isRepeated: (error: unknown) => boolean): Promise<Answer> {
    return retry(run, (error) => isRepeated(error) && !this.#stopped)
  }
}

type Entry<Call, Result> = {
  readonly call: Call
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}

type Lane<Call, Result> = {
  queued: Entry<Call, Result>[]
  /** A batch with calls of this lane is being committed. */
  busy: boolean
}

/** A separate lane for one group. */
type AsideGroup<Call, Result> = Lane<Call, Result> & { untilMs: number }
