import { createHash } from 'node:crypto'

/** A UUID (version 8) derived from a name: the same name always gives the same row. */
export function derivedId(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/**
 * The account id of a wallet is derived from its lower-case address. So the signer can verify, without a database, that a refund goes to
 * the wallet that paid.
 */
export function walletAccountId(address: string): string {
  return derivedId(`penny x402 account ${address}`)
}
