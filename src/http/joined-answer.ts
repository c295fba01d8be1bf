import type { ServerResponse } from 'node:http'
import type { AnswerHead } from '../chat/recording.ts'
import type { ChatAnswer } from './chat-answer.ts'

/**
 * The answer of a retry that waits for the attempt before it. From the moment on when that one is known, this client's connection
 * is kept alive by the same rules, and its headers are the ones of the answer that it will get.
 */
export class JoinedAnswer {
  readonly #outgoing: ServerResponse
  readonly #open: (head: AnswerHead) => ChatAnswer
  #waiting: { readonly head: AnswerHead; readonly answer: ChatAnswer } | undefined

  constructor(outgoing: ServerResponse, open: (head: AnswerHead) => ChatAnswer) {
    this.#outgoing = outgoing
    this.#open = open
  }

  /** Whether the client was told already whose answer it will get. */
  get committed(): boolean {
    return this.#waiting !== undefined && this.#outgoing.headersSent
  }

  /** The answer of this attempt is waited for from now on. */
  waitFor(head: AnswerHead): void {
    if (this.committed || this.#outgoing.destroyed || this.#waiting?.head.requestId === head.requestId) return
    this.abandon()
    this.#waiting = { head, answer: this.#open(head) }
  }

  /** The answer that is to be given now. */
  answerFor(head: AnswerHead): ChatAnswer {
    this.waitFor(head)
    return this.#waiting?.answer ?? this.#open(head)
  }

  /** There is nothing to wait for. Only where nothing was committed can another answer follow. */
  abandon(): void {
    this.#waiting?.answer.abandon()
    this.#waiting = undefined
  }

  /** For one that is committed. */
  fail(error: unknown): void {
    this.#waiting?.answer.fail(error)
  }
}
