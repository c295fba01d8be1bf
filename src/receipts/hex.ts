/** Bytes as text: `0x` and lower-case hex digits. */
export type Hex = `0x${string}`

export const zeroHash: Hex = `0x${'0'.repeat(64)}`

const digits = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

export function toHex(bytes: Uint8Array): Hex {
  let text = '0x'
  for (const byte of bytes) text += digits[byte]
  return text as Hex
}

/** Writes `size` bytes at `offset`. Throws a RangeError unless the text has exactly that many: a wrong one would be hashed in silence. */
export function writeHex(text: string, size: number, target: Uint8Array, offset: number): void {
  if (text.length !== 2 + 2 * size || !hexPattern.test(text))
    throw new RangeError(`not ${size} bytes in lower-case hex`)
  for (let index = 0; index < size; index += 1) {
    const place = 2 + 2 * index
    target[offset + index] = digitAt(text, place) * 16 + digitAt(text, place + 1)
  }
}

function digitAt(text: string, place: number): number {
  const code = text.charCodeAt(place)
  return code < 0x3a ? code - 0x30 : code - 0x57
}

export function fromHex(text: string, size: number): Uint8Array {
  const bytes = new Uint8Array(size)
  writeHex(text, size, bytes, 0)
  return bytes
}

const hexPattern = /^0x[0-9a-f]*$/
