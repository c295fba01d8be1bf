import { createHash, randomBytes } from 'node:crypto'

/** 256 random bits for a cookie or a link. */
export function createToken(): string {
  return randomBytes(32).toString('base64url')
}

/** What is stored of a token: it has enough entropy that a plain hash cannot be searched. */
export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}
