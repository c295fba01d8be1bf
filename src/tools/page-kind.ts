/** How a page is parsed. */
export type PageKind = 'html' | 'text' | 'pdf'

const sniffedBytesMax = 1_024

/**
 * Decides by the Content-Type header, or by the first bytes when the header is missing or too general. Undefined: the page is not
 * readable.
 */
export function pageKind(contentType: string, body: Uint8Array): PageKind | undefined {
  const type = contentType.split(';')[0]!.trim().toLowerCase()
  if (type === 'text/html' || type === 'application/xhtml+xml') return 'html'
  if (type === 'application/pdf' || type === 'application/x-pdf') return 'pdf'
  if (
    type.startsWith('text/') ||
    /^application\/(?:.*\+)?(?:json|xml|yaml|x-yaml|toml|x-ndjson|javascript)$/.test(type)
  ) {
    return 'text'
  }
  return type === '' || type === 'application/octet-stream' || type === 'binary/octet-stream' ? sniff(body) : undefined
}

function sniff(body: Uint8Array): PageKind | undefined {
  const start = Buffer.from(body.subarray(0, sniffedBytesMax))
  const text = start.toString('latin1').trimStart().toLowerCase()
  if (text.startsWith('%pdf-')) return 'pdf'
  if (text.startsWith('<!doctype html') || text.startsWith('<html')) return 'html'
  return start.includes(0) ? undefined : 'text'
}
