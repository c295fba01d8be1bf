import { BatchQueue } from '../db/batch.ts'
import { isConnectionLost } from '../db/database.ts'

/** One queue per partition: a batch is one function call, and a function touches one partition. */
export class PartitionQueues<Call, Result> {
  readonly #run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>
  readonly #queues = new Map<number, BatchQueue<Call, Result>>()

  constructor(run: (partition: number, calls: readonly Call[]) => Promise<readonly Result[]>) {
    this.#run = run
  }

  add(partition: number, call: Call): Promise<Result> {
    let queue = this.#queues.get(partition)
    if (queue === undefined) {
      queue = new BatchQueue({ run: (calls) => this.#run(partition, calls), isOutcomeUnknown: mayPass })
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

// Deadlocks and serialization, a full disk or memory, locks, an operator's or a failing server's interruption: nothing is
// wrong with the call itself, and it will be answered when the trouble is over.
const passingStates = /^(40|53|55|57|58)/

function mayPass(error: unknown): boolean {
  return isConnectionLost(error) || passingStates.test(String((error as { code?: unknown } | null)?.code ?? ''))
}
