/** A reasoning item without reasoning is this long: header, padding and signature of its encryption, in base64, and its ids. */
export const sealedEnvelopeBytes = 512

/**
 * Before a model's ratio is learned. Sealed reasoning is encrypted text in base64: English has about 4.3 bytes a token (code less),
 * base64 makes 5.7 of them. Ten bytes a token leave almost half of the size to whatever else is sealed with it.
 */
const tokensPerByteDefault = 0.1

/** Shorter seals say little: their envelope is a large part of them, and many of them would pull the ratio down. */
const sampleBytesMin = 4_096
const samplesMin = 8
const samplesMax = 64

/**
 * Estimates how many tokens of reasoning a sealed reasoning item stands for. The upstream reports them only with a whole answer; of
 * one that was cut, the size of the seal is all that is known. Learns the ratio of tokens to bytes per model, from whole answers,
 * and uses the lower quartile: what is billed by it is meant to be a lower bound.
 */
export class HiddenReasoning {
  readonly #samples = new Map<string, number[]>()

  /** A whole answer: what was sealed, without the envelopes, and what the upstream reported for it. */
  learn(model: string, sealedBytes: number, reasoningTokens: number): void {
    if (sealedBytes < sampleBytesMin) return
    const samples = this.#samples.get(model) ?? []
    samples.push(reasoningTokens / sealedBytes)
    if (samples.length > samplesMax) samples.shift()
    this.#samples.set(model, samples)
  }

  /** The tokens that so many sealed bytes, without the envelopes, stand for at least. */
  estimate(model: string, sealedBytes: number): number {
    return Math.floor(sealedBytes * this.#tokensPerByte(model))
  }

  #tokensPerByte(model: string): number {
    const samples = this.#samples.get(model) ?? []
    if (samples.length < samplesMin) return tokensPerByteDefault
    return samples.toSorted((one, other) => one - other)[Math.floor(samples.length / 4)]!
  }
}
