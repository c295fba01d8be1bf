import { createHash, createHmac } from 'node:crypto'

// Not a secret: it detects clients that do not replay reasoning unchanged, and stays valid across restarts of the sandbox.
const sealKey = 'penny-router-sandbox-model'

/** The opaque form in which reasoning leaves the model, bound to its item. */
export function seal(itemId: string, reasoning: string): string {
  return sealDigest(itemId, createHash('sha256').update(reasoning).digest())
}

/** Whether these bytes are exactly what {@link seal} made; for the given item if the client names one. */
export function isSealed(contents: string, itemId: string | undefined): boolean {
  const bytes = Buffer.from(contents, 'base64url')
  const sealedId = bytes.subarray(64).toString()
  // Sealing again, instead of comparing signatures, also refuses another encoding of the same bytes.
  return contents === sealDigest(sealedId, bytes.subarray(32, 64)) && (itemId === undefined || itemId === sealedId)
}

function sealDigest(itemId: string, digest: Uint8Array): string {
  const signature = createHmac('sha256', sealKey).update(digest).update(itemId).digest()
  return Buffer.concat([signature, digest, Buffer.from(itemId)]).toString('base64url')
}
