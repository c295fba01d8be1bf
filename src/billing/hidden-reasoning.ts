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
const samplesMax = 64

/**
 * Estimates the reasoning tokens of an encrypted item from its size. The upstream reports them only with a complete answer; for a
 * truncated one, the size is all we know. Learns the tokens per byte of each model from complete answers, and uses the lower
 * quartile, so that the bill is a lower bound.
 */
export class HiddenReasoning {
  readonly #samples = new Map<string, number[]>()

  /** Learns from a complete answer: encrypted bytes without the envelopes, and the reported tokens. */
  learn(model: string, sealedBytes: number, reasoningTokens: number): void {
    if (sealedBytes < sampleBytesMin) return
    const samples = this.#samples.get(model) ?? []
    samples.push(reasoningTokens / sealedBytes)
    if (samples.length > samplesMax) samples.shift()
    this.#samples.set(model, samples)
  }

  /** The fewest reasoning tokens for this many encrypted bytes, without the envelopes. */
  estimate(model: string, sealedBytes: number): number {
    const samples = this.#samples.get(model) ?? []
    if (samples.length < samplesMin) return Math.floor(sealedBytes * tokensPerByteDefault)
    const lowerQuartile = samples.toSorted((one, other) => one - other)[Math.floor(samples.length / 4)]!
    return Math.floor(sealedBytes * lowerQuartile)
  }
}
