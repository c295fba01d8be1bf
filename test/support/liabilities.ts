import { type Hex, toHex, zeroHash } from '../../src/receipts/hex.ts'
import {
  type LiabilityProofDocument,
  type Snapshot,
  snapshotDigest,
  snapshotNumber,
  writeLiabilityProof,
} from '../../src/receipts/liability-proof.ts'
import {
  createTreeHasher,
  type SumNode,
  siblingsOf,
  treeHeight,
  treeLevels,
} from '../../src/receipts/liability-tree.ts'
import { keccak256 } from '../../src/signer/keccak.ts'
import { signDigest } from '../../src/signer/secp256k1.ts'
import { keys, terms } from './signing.ts'

// A service that may lie: it signs any tree.

export const domain = { chainId: BigInt(terms.chainId), gatewayWallet: terms.gatewayWallet }
export const issuer = keys.ofRole('issuer').address

export function accountId(index: number): string {
  return `00000000-0000-7000-8000-${index.toString(16).padStart(12, '0')}`
}

export const saltFor = (account: string): Hex => toHex(keccak256(`salt of ${account}`))

export function leafNode(account: string, amount: bigint): SumNode {
  return createTreeHasher(keccak256).leaf({ account, amount, salt: keccak256(`salt of ${account}`) })
}

export type Published = {
  readonly snapshot: Snapshot
  /** The proof that it shows to that account: with the amount that the customer expects, whatever the tree has. */
  proveTo(account: string, amount: bigint, place: number): LiabilityProofDocument
}

const time = 1_763_560_800_123n

export function publish(leaves: readonly SumNode[], changes: Partial<Snapshot> = {}): Published {
  const hasher = createTreeHasher(keccak256)
  const levels = treeLevels(leaves, { from: 0, to: treeHeight(leaves.length) }, hasher)
  const top = levels.at(-1)![0]!
  const snapshot = {
    number: snapshotNumber(time),
    time,
    root: toHex(top.hash),
    sum: top.sum,
    leaves: BigInt(leaves.length),
    previous: zeroHash,
    block: 100n,
    onChain: top.sum,
    ...changes,
  }
  const digest = Buffer.from(snapshotDigest(snapshot, domain, keccak256))
  const signature = signDigest(digest, keys.ofRole('issuer').privateKey)
  return {
    snapshot,
    proveTo: (account, amount, place) =>
      writeLiabilityProof({
        domain,
        snapshot: { ...snapshot, issuer, signature },
        leaf: { account, amount, salt: saltFor(account), place: BigInt(place) },
        path: siblingsOf(levels, place, 0, hasher),
      }),
  }
}
