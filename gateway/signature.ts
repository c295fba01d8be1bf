import { recover } from 'tiny-secp256k1'
import { type Address, concat, type Hex } from 'viem'
import { keccak256 } from './keccak.ts'

// Half of the curve's order. A signature with a larger s has a second valid form, and the contract refuses it.
const lowHalfMax = '7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0'
const signaturePattern = /^0x[0-9a-f]{128}(1b|1c)$/

/**
 * The signer's address in lower case; undefined for signatures that the contract would refuse. It requires 65 bytes, low s, v 27 or
 * 28.
 */
export function recoverSigner(digest: Hex, signature: Hex): Address | undefined {
  const text = signature.toLowerCase()
  if (!signaturePattern.test(text) || text.slice(66, 130) > lowHalfMax) return undefined
  const [bytes, recoveryId] = [Buffer.from(text.slice(2, 130), 'hex'), text.endsWith('1b') ? 0 : 1] as const
  try {
    const point = recover(Buffer.from(digest.slice(2), 'hex'), bytes, recoveryId, false)
    return point === null ? undefined : `0x${keccak256(point.subarray(1)).slice(-40)}`
  } catch {
    // The library throws on values that are not on the curve: an invalid signature.
    return undefined
  }
}

/** EIP-712: the digest to sign for a structure under a domain. */
export function typedDataDigest(domainSeparator: Hex, structHash: Hex): Hex {
  return keccak256(concat(['0x1901', domainSeparator, structHash]))
}
