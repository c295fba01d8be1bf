/** Longer headers are not decoded. Node itself accepts 16 KiB of headers. */
const headerBytesMax = 8 * 1024

/** The form of all headers of x402: JSON in base64. */
export function encodeHeader(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64')
}

/** Undefined when the text is not base64, or does not contain a JSON object. */
export function decodeHeader(text: string): Record<string, unknown> | undefined {
  if (text.length > headerBytesMax || !/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64').toString('utf8'))
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}
