import type { Bill } from '../billing/bill.ts'
import { type ChargingParts, roundUsage } from '../billing/charge.ts'
import { furtherRoundsMax } from '../billing/quote.ts'
import type { UpstreamUse } from '../billing/upstream-use.ts'
import type { ChatEvent } from '../inference/chat-events.ts'
import type { Turn } from '../providers/model-request.ts'
import type { AdmittedRequest } from './admit.ts'
import { countEachOnce, type PendingResult, planRound, type RoundPlan } from './plan-round.ts'
import type { RoundReader } from './round-reader.ts'
import { ToolRunner, type ToolRunnerParts, type ToolSignals } from './tool-runner.ts'
import type { CountingParts } from './usage-so-far.ts'

export type ToolRoundParts = ToolRunnerParts & {
  readonly charging: ChargingParts
  /** Counts running requests at a lower priority than requests that are being charged. */
  readonly counting: CountingParts
}

/** What one round asks the model. */
export type NextRound = Pick<RoundPlan, 'request' | 'turns' | 'isLast'>

/** The answer whose tools are run. */
export type ToolCaller = {
  readonly admitted: AdmittedRequest
  readonly bill: Bill
  readonly upstream: UpstreamUse
  readonly signals: ToolSignals
  /** Shows the progress of a call. A promise is backpressure, or waits for a client. */
  deliver(events: readonly ChatEvent[]): Promise<void> | undefined
}

/** One round for every search and page, and one for the answer. */
const roundsMax = 1 + furtherRoundsMax

export function firstRound({ request, offer }: AdmittedRequest): NextRound {
  return { request, turns: [], isLast: offer.size === 0 }
}

/** The rounds of an answer whose model calls our tools. Made with the first call. */
export class ToolRounds {
  readonly #parts: ToolRoundParts
  readonly #caller: ToolCaller
  readonly #runner: ToolRunner
  readonly #count: (texts: readonly string[]) => Promise<number>
  #rounds = 1

  constructor(parts: ToolRoundParts, caller: ToolCaller) {
    const { admitted, bill, signals } = caller
    this.#parts = parts
    this.#caller = caller
    this.#runner = new ToolRunner(parts, admitted, bill, signals)
    this.#count = countEachOnce(admitted.input, (texts) => parts.counting.countTokens(texts, admitted.sharesOf))
  }

  /**
   * Finishes a round on the bill, runs its calls one after another (each may need money that is not held yet) and plans the round that
   * reads the results. Undefined when no money is left for it.
   */
  async next(ended: RoundReader, before: NextRound, provider: string): Promise<RoundPlan | undefined> {
    const { admitted, bill } = this.#caller
    const results = await this.#runCalls(ended)
    this.#rounds += 1
    const last: Omit<Turn, 'results'> = ended.turnOf(provider)
    const isLast = this.#runner.closed || this.#rounds >= roundsMax
    const wish = { turns: before.turns, last, results, isLast }
    return planRound({ admitted, bill, runner: this.#runner, count: this.#count }, wish)
  }

  /** The pages from our tools that a round refers to. */
  citationsOf({ text, textStart }: RoundReader): readonly ChatEvent[] {
    return this.#runner.sources.citationsIn(text, textStart).map((annotation) => ({ type: 'annotation', annotation }))
  }

  async #runCalls({ pendingCalls, end }: RoundReader): Promise<readonly PendingResult[]> {
    const { admitted, bill, upstream, deliver } = this.#caller
    const { inputTokensMax } = bill.round!
    const served = { hold: admitted.hold, bill, usage: end?.usage, isWhole: true, upstream }
    const usage = await roundUsage(served, this.#parts.charging)
    bill.finishRound(usage)
    const results: PendingResult[] = []
    for (const call of pendingCalls) {
      const result = await this.#runner.run(call, inputTokensMax + usage.completionTokens, deliver)
      results.push({ callId: call.id, result })
    }
    return results
  }
}
