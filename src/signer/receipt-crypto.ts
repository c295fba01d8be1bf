import type { ReceiptCrypto } from '../receipts/crypto.ts'
import { keccak256 } from './keccak.ts'
import { recoverAddress } from './secp256k1.ts'

/** Node's native cryptography, for creating and verifying receipts. */
export const receiptCrypto: ReceiptCrypto = { keccak256, recoverAddress }
