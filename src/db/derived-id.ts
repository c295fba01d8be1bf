import { createHash } from 'node:crypto'

/** A UUID (version 8) that follows from a name: what has one name has one row. */
export function derivedId(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/**
 * The id of a wallet's account follows from its address, in lower case. So the signer can check, without a database, that a refund of an
 * account goes to the wallet that paid.
 */
export function walletAccountId(address: string): string {
  return derivedId(`penny x402 account ${address}`)
}
