import type { ChatEvent, FinishReason } from '../inference/chat-events.ts'
import type { RequestUsage } from '../ledger/hold-calls.ts'
import type { RequestId } from '../ledger/request-id.ts'
import { fromAtomic, type Usdc } from '../money/usdc.ts'

// The log of an answer for its retries, and how it is stored as text (docs/operations/retry.md).

/** Metadata of an answer, known before it begins. */
export type AnswerHead = {
  readonly requestId: RequestId
  readonly model: string
  readonly createdAt: Date
  readonly held: Usdc
}

/** Metadata of an answer at its end, from the ledger. */
export type AnswerEnd = {
  readonly finishReason: FinishReason
  readonly usage: RequestUsage
  readonly charged: Usdc
  readonly searchCost: Usdc
  /** The prompt's part of the charge. The rest, without searches, is the completion's part. */
  readonly inputCost: Usdc
}

/** A whole answer that can be replayed, streamed or buffered. */
export type Recording = AnswerHead & AnswerEnd & { readonly events: readonly ChatEvent[] }

const bytesMax = 2 * 1024 * 1024
const eventBytes = 200

/** Events that are not part of the answer, or that are sent separately. */
const unrecorded = new Set<ChatEvent['type']>(['accepted', 'activity', 'cost', 'item', 'finish', 'failed'])

/** The events of one answer, adjacent ones joined: how the upstream split the text is not part of the answer. */
export class AnswerLog {
  readonly #reserve: (bytes: number) => boolean
  #events: ChatEvent[] | undefined = []
  #bytes = 0

  /** `reserve` takes memory from the budget of all logs; false when none is left. */
  constructor(reserve: (bytes: number) => boolean) {
    this.#reserve = reserve
  }

  add(events: readonly ChatEvent[]): void {
    for (const event of events) if (!unrecorded.has(event.type)) this.#addOne(event)
  }

  /** Undefined when the answer does not fit into memory. */
  get events(): readonly ChatEvent[] | undefined {
    return this.#events
  }

  get bytes(): number {
    return this.#bytes
  }

  #addOne(event: ChatEvent): void {
    if (this.#events === undefined) return
    const last = this.#events.at(-1)
    const joined = last && join(last, event)
    const bytes = ('text' in event ? 2 * event.text.length : 0) + (joined ? 0 : eventBytes)
    if (this.#bytes + bytes > bytesMax || !this.#reserve(bytes)) {
      this.#events = undefined
      return
    }
    this.#bytes += bytes
    if (joined) this.#events[this.#events.length - 1] = joined
    else this.#events.push(event)
  }
}

function join(last: ChatEvent, next: ChatEvent): ChatEvent | undefined {
  if (!('text' in last) || !('text' in next) || last.type !== next.type) return undefined
  if ('index' in last && 'index' in next && last.index !== next.index) return undefined
  return { ...last, text: last.text + next.text }
}

export function writeRecording(recording: Recording): string {
  return JSON.stringify(recording, (_, value) => (typeof value === 'bigint' ? value.toString() : value))
}

/** Reads what `writeRecording` wrote. */
export function readRecording(text: string): Recording {
  const stored = JSON.parse(text)
  return {
    ...stored,
    createdAt: new Date(stored.createdAt),
    held: fromAtomic(BigInt(stored.held)),
    charged: fromAtomic(BigInt(stored.charged)),
    searchCost: fromAtomic(BigInt(stored.searchCost)),
    inputCost: fromAtomic(BigInt(stored.inputCost)),
  }
}
