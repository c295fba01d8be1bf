import type { RequestId } from '../ledger/request-id.ts'
import { type AnswerHead, Recorder, type Recording } from './recording.ts'

/** A request that is being answered here, and those who wait for its answer. */
export class RunningAttempt {
  readonly recorder = new Recorder()
  readonly #head = Promise.withResolvers<AnswerHead>()
  readonly #result = Promise.withResolvers<Recording | undefined>()
  readonly #nobodyWaits = new AbortController()
  #joined = 0
  #clientLeft = false

  /** Aborts when nobody waits any more: neither the client that began it nor one that joined. */
  get gone(): AbortSignal {
    return this.#nobodyWaits.signal
  }

  /** The client that began the attempt has left; it goes on while others wait. */
  clientLeft(reason: unknown): void {
    this.#clientLeft = true
    if (this.#joined === 0) this.#nobodyWaits.abort(reason)
  }

  /** It holds its money: what its answer will say of itself is known. */
  admitted(head: AnswerHead): void {
    this.#head.resolve(head)
  }

  /** Waits for the answer: undefined when there is none that could be given again. `onHead` hears which one is waited for. */
  async join(gone: AbortSignal, onHead: (head: AnswerHead) => void): Promise<Recording | undefined> {
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(gone.reason)
    gone.addEventListener('abort', leave, { once: true })
    this.#joined += 1
    let isOver = false
    void this.#head.promise.then((head) => {
      if (!isOver) onHead(head)
    })
    try {
      gone.throwIfAborted()
      return await Promise.race([this.#result.promise, left.promise])
    } finally {
      isOver = true
      gone.removeEventListener('abort', leave)
      this.#joined -= 1
      if (this.#clientLeft && this.#joined === 0) this.#nobodyWaits.abort(gone.reason)
    }
  }

  close(recording: Recording | undefined): void {
    this.#result.resolve(recording)
  }
}

const keptMs = 60_000
const keptMax = 10_000

/** The attempts of this node that can be joined, and for a minute after their end the answers that can be given again. */
export class RunningAttempts {
  readonly #attempts = new Map<RequestId, RunningAttempt>()

  open(requestId: RequestId): RunningAttempt {
    const attempt = new RunningAttempt()
    this.#attempts.set(requestId, attempt)
    return attempt
  }

  find(requestId: RequestId): RunningAttempt | undefined {
    return this.#attempts.get(requestId)
  }

  /** Tells those who wait. The answer stays for a while; the oldest go first when there are too many. */
  close(requestId: RequestId, recording: Recording | undefined): void {
    this.#attempts.get(requestId)?.close(recording)
    if (recording === undefined) {
      this.#attempts.delete(requestId)
      return
    }
    setTimeout(() => this.#attempts.delete(requestId), keptMs).unref()
    if (this.#attempts.size > keptMax) this.#forgetOldest()
  }

  #forgetOldest(): void {
    const [oldest] = this.#attempts.keys()
    if (oldest !== undefined) this.#attempts.delete(oldest)
  }
}
