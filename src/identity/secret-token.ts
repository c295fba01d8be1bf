import { createHash, randomBytes } from 'node:crypto'

/** 256 random bits for a cookie or a link. */
export function createToken(): string {
  return randomBytes(32).toString('base64url')
}

/** The database stores only this. A token has enough entropy that an unsalted hash resists a search. */
export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}
