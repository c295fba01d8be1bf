const searchedBytesMax = 4_096

/** The text of a page. A mark at its start is believed first, then the server, then the page itself, then the bytes. */
export function decodeText(body: Uint8Array, contentType: string): string {
  const label = charsetIn(contentType) ?? declaredIn(body)
  const decoder = markedDecoder(body) ?? (label === undefined ? undefined : decoderFor(label))
  return decoder === undefined ? decodeUnknown(body) : decoder.decode(body)
}

function markedDecoder(body: Uint8Array): TextDecoder | undefined {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return new TextDecoder()
  if (body[0] === 0xff && body[1] === 0xfe) return new TextDecoder('utf-16le')
  if (body[0] === 0xfe && body[1] === 0xff) return new TextDecoder('utf-16be')
  return undefined
}

function charsetIn(contentType: string): string | undefined {
  return /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(contentType)?.[1]
}

/** `<meta charset="…">`, the older `<meta http-equiv … content="…; charset=…">`, or an XML declaration. */
function declaredIn(body: Uint8Array): string | undefined {
  const start = Buffer.from(body.subarray(0, searchedBytesMax)).toString('latin1')
  const found =
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})/i.exec(start) ??
    /^<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})/i.exec(start)
  // A page whose declaration could be read byte by byte is not in UTF-16, whatever it declares.
  return found?.[1]?.toLowerCase().startsWith('utf-16') ? 'utf-8' : found?.[1]
}

function decoderFor(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label)
  } catch {
    return undefined
  }
}

/** UTF-8 where the bytes are; what is not is most often the old western one. */
function decodeUnknown(body: Uint8Array): string {
  try {
    // A page may have been cut in the middle of its last letter.
    return new TextDecoder('utf-8', { fatal: true }).decode(body, { stream: true })
  } catch {
    return new TextDecoder('windows-1252').decode(body)
  }
}
