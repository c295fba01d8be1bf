import { hash } from 'node:crypto'
import { OperatorError } from '../errors.ts'

/** The chain's hash. OpenSSL's version is ten times as fast as one in JavaScript, and every official Node 26 includes it. */
export function keccak256(data: string | Uint8Array): Buffer {
  try {
    // Converting via a string is faster: a pooled buffer costs half as much as the one that OpenSSL allocates.
    return Buffer.from(hash('keccak-256', data, 'binary'), 'binary')
  } catch (error) {
    // This Node was built with another OpenSSL. Thrown at the first import, long before the first signature.
    throw new OperatorError(
      `This Node (OpenSSL ${process.versions.openssl}) lacks keccak-256. Use an official build of Node.`,
      error,
    )
  }
}
