// A language model of one megabyte with random weights, in the GGUF file format: its answers are word salad, which is enough for
// the protocol, the counting of tokens and the money.

const width = 32
const heads = 4
const layers = 2
const feedForward = 64
const contextLength = 8192
const alignment = 32

const kinds = { uint32: 4, int32: 5, float32: 6, string: 8, array: 9 } as const
const tokenKinds = { normal: 1, unknown: 2, control: 3, byte: 6 } as const

/** Every message between marks, as most models are trained; without it the server would take a template that it does not know. */
const chatTemplate = `{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}<assistant>`

type Token = { readonly text: string; readonly score: number; readonly kind: number }
type Tensor = { readonly name: string; readonly shape: readonly number[]; readonly value: () => number }

/** @param text the vocabulary has its words, and each byte for other text. */
export function tinyModel(text: string): Buffer {
  const tokens = vocabularyOf(text)
  const tensors = tensorsOf(tokens.length)
  const settings = settingsOf(tokens)
  const head = [Buffer.from('GGUF'), uint32(3), uint64(tensors.length), uint64(settings.length), ...settings]
  const datas = tensors.map(({ shape, value }) =>
    padded(
      floats(
        shape.reduce((a, b) => a * b),
        value,
      ),
    ),
  )
  let offset = 0
  const infos = tensors.flatMap(({ name, shape }, index) => {
    const info = [string(name), uint32(shape.length), ...shape.map(uint64), uint32(0), uint64(offset)]
    offset += datas[index]!.length
    return info
  })
  return Buffer.concat([padded(Buffer.concat([...head, ...infos])), ...datas])
}

/** SentencePiece joins neighbours while both together are a token: every beginning of a word must be one. */
function vocabularyOf(text: string): readonly Token[] {
  const words = new Set([...text.matchAll(/[A-Za-z]+/g)].map(([word]) => `▁${word}`))
  const pieces = new Set([...words].flatMap((word) => Array.from(word, (_, end) => word.slice(0, end + 1))))
  const control = (name: string) => ({ text: name, score: 0, kind: tokenKinds.control })
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)
  return [
    { text: '<unk>', score: 0, kind: tokenKinds.unknown },
    control('<s>'),
    control('</s>'),
    ...bytes.map((byte) => ({ text: byte, score: 0, kind: tokenKinds.byte })),
    ...[...pieces].map((piece) => ({ text: piece, score: piece.length - 100, kind: tokenKinds.normal })),
  ]
}

function settingsOf(tokens: readonly Token[]): readonly Buffer[] {
  const setting = (name: string, kind: number, value: Buffer) => Buffer.concat([string(name), uint32(kind), value])
  const number = (name: string, value: number) => setting(name, kinds.uint32, uint32(value))
  const list = (name: string, kind: number, values: readonly Buffer[]) =>
    setting(name, kinds.array, Buffer.concat([uint32(kind), uint64(values.length), ...values]))
  return [
    setting('general.architecture', kinds.string, string('llama')),
    setting('general.name', kinds.string, string('tiny')),
    number('llama.context_length', contextLength),
    number('llama.embedding_length', width),
    number('llama.block_count', layers),
    number('llama.feed_forward_length', feedForward),
    number('llama.attention.head_count', heads),
    number('llama.rope.dimension_count', width / heads),
    setting('llama.attention.layer_norm_rms_epsilon', kinds.float32, float32(1e-5)),
    setting('tokenizer.ggml.model', kinds.string, string('llama')),
    list(
      'tokenizer.ggml.tokens',
      kinds.string,
      tokens.map(({ text }) => string(text)),
    ),
    list(
      'tokenizer.ggml.scores',
      kinds.float32,
      tokens.map(({ score }) => float32(score)),
    ),
    list(
      'tokenizer.ggml.token_type',
      kinds.int32,
      tokens.map(({ kind }) => uint32(kind)),
    ),
    number('tokenizer.ggml.unknown_token_id', 0),
    number('tokenizer.ggml.bos_token_id', 1),
    number('tokenizer.ggml.eos_token_id', 2),
    setting('tokenizer.chat_template', kinds.string, string(chatTemplate)),
  ]
}

function tensorsOf(tokens: number): readonly Tensor[] {
  const random = randomNumbers()
  const one = () => 1
  const layer = (index: number): readonly Tensor[] => [
    { name: `blk.${index}.attn_norm.weight`, shape: [width], value: one },
    { name: `blk.${index}.attn_q.weight`, shape: [width, width], value: random },
    { name: `blk.${index}.attn_k.weight`, shape: [width, width], value: random },
    { name: `blk.${index}.attn_v.weight`, shape: [width, width], value: random },
    { name: `blk.${index}.attn_output.weight`, shape: [width, width], value: random },
    { name: `blk.${index}.ffn_norm.weight`, shape: [width], value: one },
    { name: `blk.${index}.ffn_gate.weight`, shape: [width, feedForward], value: random },
    { name: `blk.${index}.ffn_up.weight`, shape: [width, feedForward], value: random },
    { name: `blk.${index}.ffn_down.weight`, shape: [feedForward, width], value: random },
  ]
  return [
    { name: 'token_embd.weight', shape: [width, tokens], value: random },
    ...Array.from({ length: layers }, (_, index) => layer(index)).flat(),
    { name: 'output_norm.weight', shape: [width], value: one },
    { name: 'output.weight', shape: [width, tokens], value: random },
  ]
}

/** The same in every run, around 0. */
function randomNumbers(): () => number {
  let state = 20261119
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32 - 0.5
  }
}

function floats(length: number, value: () => number): Buffer {
  return Buffer.from(Float32Array.from({ length }, value).buffer)
}

function padded(data: Buffer): Buffer {
  return Buffer.concat([data, Buffer.alloc((alignment - (data.length % alignment)) % alignment)])
}

function string(text: string): Buffer {
  const bytes = Buffer.from(text)
  return Buffer.concat([uint64(bytes.length), bytes])
}

function uint32(value: number): Buffer {
  const buffer = Buffer.alloc(4)
  buffer.writeUInt32LE(value)
  return buffer
}

function uint64(value: number): Buffer {
  const buffer = Buffer.alloc(8)
  buffer.writeBigUInt64LE(BigInt(value))
  return buffer
}

function float32(value: number): Buffer {
  const buffer = Buffer.alloc(4)
  buffer.writeFloatLE(value)
  return buffer
}
