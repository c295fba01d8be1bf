import { InvalidReceiptError } from './read-fields.ts'

export const lineLengthMax = 65_536

/** The lines of a file, a few at a time. Throws an InvalidReceiptError for a line without end: memory stays bounded. */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<readonly string[]> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let rest = ''
  let count = 0
  for await (const chunk of chunks) {
    const lines = (rest + decode(decoder, chunk)).split('\n')
    rest = lines.pop()!
    const tooLong = [...lines, rest].findIndex((line) => line.length > lineLengthMax)
    if (tooLong !== -1) {
      throw new InvalidReceiptError(`line ${count + tooLong + 1} is longer than ${lineLengthMax} characters`)
    }
    count += lines.length
    if (lines.length > 0) yield lines
  }
  rest += decode(decoder)
  if (rest !== '') yield [rest]
}

function decode(decoder: TextDecoder, chunk?: Uint8Array): string {
  try {
    return chunk === undefined ? decoder.decode() : decoder.decode(chunk, { stream: true })
  } catch {
    throw new InvalidReceiptError('the file is not UTF-8 text')
  }
}
