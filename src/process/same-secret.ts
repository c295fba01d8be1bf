import { createHash, timingSafeEqual } from 'node:crypto'

/** Compares in constant time. `timingSafeEqual` needs equal lengths; hashes have them and tell nothing about the secret's length. */
export function isSameSecret(given: string, secret: string): boolean {
  return timingSafeEqual(sha256(given), sha256(secret))
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
