import { hash } from 'node:crypto'
import { OperatorError } from '../errors.ts'

/** The chain's hash. OpenSSL's is ten times as fast as one in JavaScript, and every official Node 26 has it. */
export function keccak256(data: string | Uint8Array): Buffer {
  try {
    // By way of text: a buffer from a pool costs half of what OpenSSL's own one does.
    return Buffer.from(hash('keccak-256', data, 'binary'), 'binary')
  } catch (error) {
    throw new KeccakMissingError(error)
  }
}

/** A Node that was built on another OpenSSL. Seen at the first import, long before the first signature. */
class KeccakMissingError extends OperatorError {
  constructor(cause: unknown) {
    super(`This Node (OpenSSL ${process.versions.openssl}) lacks keccak-256. Use an official build of Node.`, cause)
  }
}
