import type { ReceiptCrypto } from '../receipts/crypto.ts'
import { keccak256 } from './keccak.ts'
import { recoverAddress } from './secp256k1.ts'

/** The native cryptography of Node, for making and verifying receipts. */
export const receiptCrypto: ReceiptCrypto = { keccak256, recoverAddress }
