import { BatchQueue, type Groups } from '../db/batch.ts'
import { isTransient } from '../db/database.ts'

/** The partition of a batch's calls. Null: the calls may be of any partitions. */
export type BatchPartition = number | null

export type PartitionQueuesOptions<Call, Result> = {
  readonly run: (partition: BatchPartition, calls: readonly Call[]) => Promise<readonly Result[]>
  /** Whether one batch takes calls of all partitions. Otherwise each partition has its own batches. */
  readonly spansPartitions: () => boolean
  /** Reports the size and duration of every committed batch. */
  readonly onBatch: (size: number, ms: number) => void
  /** Batches that fail with such an error are retried until the database answers. */
  readonly isRepeated?: (error: unknown) => boolean
  /** See `BatchQueue`. Without it, a partition runs one batch at a time. */
  readonly laneOf?: (call: Call) => number
  /** See `BatchQueue`. */
  readonly restMs?: number
  /** The most calls that may wait; more are refused. */
  readonly queuedMax?: number
  /** Groups of calls that lock their account. */
  readonly groups?: (partition: BatchPartition) => Groups<Call, Result>
}

/** One queue for all partitions, or one for each: a batch is one function call, and on a cluster a call goes to one partition. */
export class PartitionQueues<Call, Result> {
  readonly #options: PartitionQueuesOptions<Call, Result>
  readonly #queues = new Map<BatchPartition, BatchQueue<Call, Result>>()

  constructor(options: PartitionQueuesOptions<Call, Result>) {
    this.#options = options
  }

  add(partitionOfCall: number, call: Call): Promise<Result> {
    const partition = this.#options.spansPartitions() ? null : partitionOfCall
    let queue = this.#queues.get(partition)
    if (queue === undefined) {
      const { isRepeated = isTransient, laneOf, restMs, queuedMax, groups } = this.#options
      const run = (calls: readonly Call[]) => this.#timed(partition, calls)
      queue = new BatchQueue({
        run,
        isOutcomeUnknown: isRepeated,
        ...(laneOf && { laneOf }),
        ...(restMs !== undefined && { restMs }),
        ...(queuedMax !== undefined && { queuedMax }),
        groups: groups?.(partition),
      })
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

  async #timed(partition: BatchPartition, calls: readonly Call[]): Promise<readonly Result[]> {
    const startedMs = performance.now()
    const results = await this.#options.run(partition, calls)
    this.#options.onBatch(calls.length, performance.now() - startedMs)
    return results
  }
}
