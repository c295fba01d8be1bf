import { hkdfSync } from 'node:crypto'
import type { Address } from './address.ts'
import { addressOfKey, isPrivateKey } from './secp256k1.ts'

export type CustodialKey = {
  readonly privateKey: Buffer
  readonly address: Address
}

/**
 * Keys of the service itself: the seller receives revenue, the relayer pays gas, the issuer signs receipts. No account uses them.
 */
export type ServiceKey = 'seller' | 'relayer' | 'issuer'

const keyBytes = 32
const attemptsMax = 16
const version = 1

/**
 * The custodial keys. Each is derived from the master key on demand and never stored. Derivation is a one-way function of the
 * master key and the owner's name: there is no extended public key, and a leaked key reveals nothing about the others (with BIP-32,
 * non-hardened children reveal their parent).
 */
export class AccountKeys {
  readonly #masterKey: Buffer
  readonly #cachedMax: number
  readonly #roles: Readonly<Record<ServiceKey, CustodialKey>>
  // Cached because deriving an address costs as much as a signature.
  readonly #accounts = new Map<string, CustodialKey>()

  constructor(masterKey: Buffer, cachedMax = 20_000) {
    this.#masterKey = masterKey
    this.#cachedMax = cachedMax
    this.#roles = {
      seller: this.#derive('role\nseller'),
      relayer: this.#derive('role\nrelayer'),
      issuer: this.#derive('role\nissuer'),
    }
  }

  /** Use the key immediately and do not keep it: its bytes are wiped when the cache evicts it. */
  ofAccount(account: string): CustodialKey {
    const cached = this.#accounts.get(account)
    if (cached !== undefined) return cached
    if (this.#accounts.size >= this.#cachedMax) this.#forgetOldest()
    const key = this.#derive(`account\n${account}`)
    this.#accounts.set(account, key)
    return key
  }

  ofRole(role: ServiceKey): CustodialKey {
    return this.#roles[role]
  }

  /** A key for integrity checks inside this process. It never leaves the process and signs nothing on the chain. */
  sealingKey(purpose: string): Buffer {
    return derive(this.#masterKey, `penny seal\n${purpose}`)
  }

  #derive(owner: string): CustodialKey {
    const privateKey = deriveSigningKey(this.#masterKey, owner)
    return { privateKey, address: addressOfKey(privateKey) }
  }

  #forgetOldest(): void {
    const [account, key] = this.#accounts.entries().next().value!
    key.privateKey.fill(0)
    this.#accounts.delete(account)
  }
}

/**
 * About one hash in 2^128 is not a valid key; then the next attempt is used. `isKey` is a parameter so that a test can reach that
 * case.
 */
export function deriveSigningKey(masterKey: Uint8Array, owner: string, isKey = isPrivateKey): Buffer {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const candidate = derive(masterKey, `penny key v${version}\n${owner}\n${attempt}`)
    if (isKey(candidate)) return candidate
  }
  throw new Error('no key could be derived')
}

function derive(masterKey: Uint8Array, info: string): Buffer {
  return Buffer.from(hkdfSync('sha256', masterKey, 'penny router', info, keyBytes))
}
