import { BatchQueue } from '../db/batch.ts'
import { isPassing } from '../db/database.ts'

/** One queue per partition: a batch is one function call, and a function touches one partition. */
export class PartitionQueues<Call, Result> {
  readonly #run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>
  readonly #queues = new Map<number, BatchQueue<Call, Result>>()

  readonly #isRepeated: (error: unknown) => boolean

  /** A batch that fails with an error for which `isRepeated` holds is run again, until the database answers. */
  constructor(
    run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>,
    isRepeated: (error: unknown) => boolean = isPassing,
  ) {
    this.#run = run
    this.#isRepeated = isRepeated
  }

  add(partition: number, call: Call): Promise<Result> {
    let queue = this.#queues.get(partition)
    if (queue === undefined) {
      queue = new BatchQueue({ run: (calls) => this.#run(partition, calls), isOutcomeUnknown: this.#isRepeated })
      this.#queues.set(partition, queue)
    }
    return queue.add(call)
  }

  async drained(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.drained()))
  }

  stop(): void {
    for (const queue of this.#queues.values()) queue.stop()
  }
}
