const searchedBytesMax = 4_096

/**
 * Decodes a page. Order of precedence: byte order mark, charset of the Content-Type header, declaration in the page, guess from the
 * bytes.
 */
export function decodeText(body: Uint8Array, contentType: string): string {
  const [, charset] = /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(contentType) ?? []
  const label = charset ?? declaredIn(body)
  const decoder = markedDecoder(body) ?? (label === undefined ? undefined : decoderFor(label))
  return decoder === undefined ? decodeUnknown(body) : decoder.decode(body)
}

function markedDecoder(body: Uint8Array): TextDecoder | undefined {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return new TextDecoder()
  if (body[0] === 0xff && body[1] === 0xfe) return new TextDecoder('utf-16le')
  if (body[0] === 0xfe && body[1] === 0xff) return new TextDecoder('utf-16be')
  return undefined
}

/** `<meta charset="…">`, the older `<meta http-equiv … content="…; charset=…">`, or an XML declaration. */
function declaredIn(body: Uint8Array): string | undefined {
  const start = Buffer.from(body.subarray(0, searchedBytesMax)).toString('latin1')
  const found =
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})/i.exec(start) ??
    /^<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})/i.exec(start)
  // The declaration was readable as single bytes, so the page cannot be UTF-16, even if it says so.
  return found?.[1]?.toLowerCase().startsWith('utf-16') ? 'utf-8' : found?.[1]
}

function decoderFor(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label)
  } catch {
    return undefined
  }
}

/** UTF-8 if the bytes are valid UTF-8. Most pages that are not are windows-1252. */
function decodeUnknown(body: Uint8Array): string {
  try {
    // The page may have been cut in the middle of a multi-byte character.
    return new TextDecoder('utf-8', { fatal: true }).decode(body, { stream: true })
  } catch {
    return new TextDecoder('windows-1252').decode(body)
  }
}
