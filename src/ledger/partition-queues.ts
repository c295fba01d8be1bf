import { BatchQueue } from '../db/batch.ts'
import { isPassing } from '../db/database.ts'

/** One queue per partition: a batch is one function call, and a function touches one partition. */
export class PartitionQueues<Call, Result> {
  readonly #run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>
  readonly #onBatch: (size: number, ms: number) => void
  readonly #queues = new Map<number, BatchQueue<Call, Result>>()

  readonly #isRepeated: (error: unknown) => boolean

  /**
   * `onBatch` is told the size of every batch that was committed, and how long that took. A batch that fails with an error for
   * which `isRepeated` holds is run again, until the database answers.
   */
  constructor(
    run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>,
    onBatch: (size: number, ms: number) => void = () => {},
    isRepeated: (error: unknown) => boolean = isPassing,
  ) {
    this.#run = run
    this.#onBatch = onBatch
    this.#isRepeated = isRepeated
  }

  add(partition: number, call: Call): Promise<Result> {
    let queue = this.#queues.get(partition)
    if (queue === undefined) {
      queue = new BatchQueue({ run: (calls) => this.#timed(partition, calls), isOutcomeUnknown: this.#isRepeated })
      this.#queues.set(partition, queue)
    }
    return queue.add(call)
  }

  /** Calls that wait for a batch, over all partitions. */
  get queued(): number {
    let sum = 0
    for (const queue of this.#queues.values()) sum += queue.queued
    return sum
  }

  async drained(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.drained()))
  }

  stop(): void {
    for (const queue of this.#queues.values()) queue.stop()
  }

  async #timed(partition: number, calls: readonly Call[]): Promise<readonly Result[]> {
    const startedMs = performance.now()
    const results = await this.#run(partition, calls)
    this.#onBatch(calls.length, performance.now() - startedMs)
    return results
  }
}
