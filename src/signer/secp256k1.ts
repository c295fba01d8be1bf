import { isPrivate, pointFromScalar, recover, signRecoverable } from 'tiny-secp256k1'
import type { Hex } from '../receipts/hex.ts'
import type { Address } from './address.ts'
import { keccak256 } from './keccak.ts'

const signaturePattern = /^0x[0-9a-f]{128}(1b|1c)$/
// Half of the curve's order. A signature with a larger s has a second valid form (malleability), which the token refuses.
const lowHalfMax = '7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0'

/** Whether the bytes are a valid private key: not zero, and below the curve's order. */
export function isPrivateKey(bytes: Uint8Array): boolean {
  return isPrivate(bytes)
}

export function addressOfKey(privateKey: Uint8Array): Address {
  return addressOfPoint(pointFromScalar(privateKey, false)!)
}

/**
 * `r ‖ s ‖ v`, 65 bytes, low s, v 27 or 28. The nonce is derived from key and digest (RFC 6979): signing again gives the same
 * bytes, so a lost signature can be made again.
 */
export function signDigest(digest: Uint8Array, privateKey: Uint8Array): Hex {
  const { signature, recoveryId } = signRecoverable(digest, privateKey)
  return `0x${Buffer.from(signature).toString('hex')}${recoveryId === 0 ? '1b' : '1c'}`
}

/** The signer's address; undefined when the signature is invalid or not in the exact form that `signDigest` writes. */
export function recoverAddress(digest: Uint8Array, signature: string): Address | undefined {
  if (!signaturePattern.test(signature) || signature.slice(66, 130) > lowHalfMax) return undefined
  try {
    const point = recover(digest, Buffer.from(signature.slice(2, 130), 'hex'), signature.endsWith('1b') ? 0 : 1, false)
    return point === null ? undefined : addressOfPoint(point)
  } catch {
    // The library throws on values that are not on the curve: an invalid signature.
    return undefined
  }
}

function addressOfPoint(uncompressed: Uint8Array): Address {
  return `0x${keccak256(uncompressed.subarray(1)).toString('hex', 12)}` as Address
}
