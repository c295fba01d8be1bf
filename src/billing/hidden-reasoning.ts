import type { ReasoningSample, ReasoningSource } from '../ledger/reasoning-samples.ts'

/** Size of an encrypted reasoning item without any reasoning: header, padding and signature in base64, and its ids. */
export const sealedEnvelopeBytes = 512

/**
 * The ratio until a model's own is learned. Encrypted reasoning is base64: English has about 4.3 bytes a token (code less), 5.7 in
 * base64. Ten bytes a token leave almost half of the size for other content.
 */
const tokensPerByteDefault = 0.1

/** Smaller items are poor samples: the envelope is a large part of them, and many of them would lower the ratio. */
const sampleBytesMin = 4_096
const samplesMin = 8
/** Longer times count as this one. */
const secondsMax = 1_024
export const samplesMax = 64

/** What was seen of one round. */
export type SeenRound = {
  readonly provider: string
  readonly model: string
  readonly effort: string
  /** Encrypted reasoning, without the envelopes. */
  readonly sealedBytes: number
  /** Milliseconds from the request to the first output, or until now. */
  readonly silentMs: number
  readonly hasOutput: boolean
  /** Milliseconds from the request to the first answer text or call, or until now. */
  readonly reasonedMs: number
  readonly hasAnswer: boolean
  /** The provider sends its reasoning encrypted, each item when it is complete. */
  readonly seals: boolean
  /** The provider shows its reasoning, sends it encrypted, or reports its usage during the answer. */
  readonly showsReasoning: boolean
}

/** Stores what was learned, for other processes and later ones. */
type SampleStore = {
  readonly read: () => Promise<readonly ReasoningSample[]>
  /** Returns the samples of this source, with the new one. */
  readonly add: (source: ReasoningSource, value: number) => Promise<readonly number[]>
  readonly onError: (error: unknown) => void
}

const noStore: SampleStore = { read: async () => [], add: async () => [], onError: () => {} }

/** A source with all of its samples learns one more this often: not every answer is worth a write. */
const refreshMs = 60_000

/**
 * Estimates reasoning that a provider neither shows nor reports before the end of an answer. Learns from whole answers, per provider,
 * model and effort, and uses the lower quartile, so that the bill is a lower bound.
 *
 * - Encrypted reasoning: the tokens per byte of the item.
 * - Otherwise the tokens that the answer reports beyond what it shows, by how long the provider was silent before the first output.
 *   Only the length of the silence tells a hard question from an easy one.
 * - While the provider still reasons: all that answers reported that began sooner, or the share of that time in those that began later.
 */
export class HiddenReasoning {
  readonly #store: SampleStore
  readonly #now: () => number
  #samples = new Map<string, readonly number[]>()
  readonly #learnedMs = new Map<string, number>()

  /** `now` returns monotonic milliseconds. */
  constructor(now: () => number = () => 0, store: SampleStore = noStore) {
    this.#now = now
    this.#store = store
  }

  /** Reads what this and other processes have learned. */
  async load(): Promise<void> {
    const stored = await this.#store.read()
    this.#samples = new Map(stored.map(({ samples, ...source }) => [nameOf(source), samples]))
  }

  /** Learns from a whole answer: the reasoning tokens that it reports beyond those that it shows. */
  learn(seen: SeenRound, hiddenTokens: number): void {
    if (seen.seals && seen.hasAnswer) this.#add(sourceOf(seen, `reasoned-${secondsOf(seen.reasonedMs)}`), hiddenTokens)
    if (seen.sealedBytes === 0) this.#add(sourceOf(seen, secondsOf(seen.silentMs)), hiddenTokens)
    else if (seen.sealedBytes >= sampleBytesMin) this.#add(sourceOf(seen, 'sealed'), hiddenTokens / seen.sealedBytes)
  }

  /** The fewest reasoning tokens of a round that was cut off. `shownTokens` of them were shown. */
  estimate(seen: SeenRound, shownTokens = 0): number {
    const { sealedBytes } = seen
    // An encrypted item contains its summary; other hidden reasoning comes on top of what is shown.
    if (sealedBytes > 0) {
      const ratio = this.#lowerQuartile(sourceOf(seen, 'sealed')) ?? tokensPerByteDefault
      return Math.max(shownTokens, Math.floor(sealedBytes * ratio))
    }
    const isReasoning = seen.seals ? !seen.hasAnswer : !seen.hasOutput
    if (isReasoning) return Math.max(shownTokens, this.#reasonedSoFar(seen))
    return shownTokens + (this.#lowerQuartile(sourceOf(seen, secondsOf(seen.silentMs))) ?? 0)
  }

  #reasonedSoFar(seen: SeenRound): number {
    let most = 0
    for (let seconds = 0; seconds <= secondsMax; seconds = 2 * seconds || 1) {
      const tokens = this.#lowerQuartile(sourceOf(seen, seen.seals ? `reasoned-${seconds}` : seconds)) ?? 0
      // Never more than whole answers reported: a provider that stalls writes nothing.
      most = Math.max(most, tokens * Math.min(1, seen.reasonedMs / (1_000 * (2 * seconds || 1))))
    }
    return Math.floor(most)
  }

  /** Nothing tells how much such a round has reasoned but its provider's report, which comes last. */
  needsReport(seen: SeenRound): boolean {
    if (!seen.hasOutput || seen.showsReasoning) return false
    return this.#lowerQuartile(sourceOf(seen, secondsOf(seen.silentMs))) === undefined
  }

  #add(source: ReasoningSource, value: number): void {
    const name = nameOf(source)
    const samples = this.#samples.get(name) ?? []
    const nowMs = this.#now()
    if (samples.length >= samplesMax && nowMs - (this.#learnedMs.get(name) ?? Number.NEGATIVE_INFINITY) < refreshMs)
      return
    this.#learnedMs.set(name, nowMs)
    this.#samples.set(name, [...samples, value].slice(-samplesMax))
    this.#store
      .add(source, value)
      .then((stored) => {
        // Another process may have learned meanwhile, and this one too.
        if (stored.length >= (this.#samples.get(name)?.length ?? 0)) this.#samples.set(name, stored)
      })
      .catch(this.#store.onError)
  }

  #lowerQuartile(source: ReasoningSource): number | undefined {
    const samples = this.#samples.get(nameOf(source)) ?? []
    if (samples.length < samplesMin) return undefined
    return samples.toSorted((one, other) => one - other)[Math.floor(samples.length / 4)]!
  }
}

/** Whole seconds, rounded down to a power of two: 0, 1, 2, 4, 8 … */
function secondsOf(milliseconds: number): number {
  return milliseconds < 1_000 ? 0 : Math.min(secondsMax, 2 ** Math.floor(Math.log2(milliseconds / 1_000)))
}

function sourceOf(
  { provider, model, effort }: SeenRound,
  basis: 'sealed' | `reasoned-${number}` | number,
): ReasoningSource {
  return { provider, model, effort, basis: String(basis) }
}

function nameOf({ provider, model, effort, basis }: ReasoningSource): string {
  return JSON.stringify([provider, model, effort, basis])
}
