import { format, fromAtomic } from '../money/usdc.ts'
import type { Keccak256, ReceiptCrypto } from './crypto.ts'
import { instantMax, uint64Max } from './entry.ts'
import { fromHex, type Hex, toHex, zeroHash } from './hex.ts'
import { createTreeHasher, type SumNode, sumMax, topOfPath, treeHeight, treeHeightMax } from './liability-tree.ts'
import { isCanonicalSignature } from './payment.ts'
import { type Fields, InvalidReceiptError, readFields, readHex, readInteger } from './read-fields.ts'
import { type DomainDocument, readDomain, writeDomain } from './receipt.ts'
import { hashText, hashWords, type ReceiptDomain, signedDigest } from './typed-data.ts'
import type { Check } from './verify-receipt.ts'

/** What the service owes to all accounts at one instant. The issuer signs it. */
export type Snapshot = {
  /** The minute in which it was taken, counted from 1970. There is at most one snapshot in a minute. */
  readonly number: bigint
  /** Milliseconds since 1970. */
  readonly time: bigint
  readonly root: Hex
  /** Atomic USDC. */
  readonly sum: bigint
  readonly leaves: bigint
  /** The digest of the snapshot before it; zeros for the first one. */
  readonly previous: Hex
  /** What the gateway's contract had for the accounts at this block. */
  readonly block: bigint
  readonly onChain: bigint
}

export type SignedSnapshot = Snapshot & { readonly issuer: Hex; readonly signature: Hex }

export type ProvenLeaf = {
  readonly account: string
  readonly amount: bigint
  readonly salt: Hex
  /** Its place among the leaves, from 0. */
  readonly place: bigint
}

export type LiabilityProof = {
  readonly domain: ReceiptDomain
  readonly snapshot: SignedSnapshot
  /** Absent: the snapshot owes nothing to the account. */
  readonly leaf?: ProvenLeaf | undefined
  /** Siblings from the leaf up to the root. */
  readonly path: readonly SumNode[]
}

/** A proof as JSON; numbers are text. */
export type LiabilityProofDocument = {
  readonly object: typeof proofObject
  readonly version: typeof proofVersion
  readonly domain: DomainDocument
  readonly snapshot: SnapshotDocument
  readonly leaf: {
    readonly account: string
    readonly amount_atomic: string
    readonly salt: Hex
    readonly place: string
  } | null
  readonly path: { readonly hash: Hex; readonly sum_atomic: string }[]
}

export type SnapshotDocument = Readonly<
  Record<'number' | 'time_ms' | 'sum_atomic' | 'leaves' | 'block' | 'on_chain_atomic', string> &
    Record<'root' | 'previous' | 'issuer' | 'signature', Hex>
>

export const proofObject = 'liability_proof'
export const proofVersion = 1
const minuteMs = 60_000n
/** The names of its domain: no signature of a receipt passes for one of a snapshot. */
const signedAs = { name: 'PennyLiabilities', version: '1' }
const snapshotType =
  'Liabilities(uint256 number,uint256 time,bytes32 root,uint256 sum,uint256 leaves,bytes32 previous,uint256 block,uint256 onChain)'

/** The number of a snapshot that is taken at that time, in milliseconds. */
export function snapshotNumber(time: bigint): bigint {
  return time / minuteMs
}

/** What the issuer signs, and what the next snapshot names as `previous`. */
export function snapshotDigest(snapshot: Snapshot, domain: ReceiptDomain, keccak256: Keccak256): Uint8Array {
  const { number, time, root, sum, leaves, previous, block, onChain } = snapshot
  const words = [hashText(snapshotType, keccak256), number, time, root, sum, leaves, previous, block, onChain]
  return signedDigest(hashWords(words, keccak256), domain, keccak256, signedAs)
}

export function writeSnapshot(snapshot: SignedSnapshot): SnapshotDocument {
  const { number, time, root, sum, leaves, previous, block, onChain, issuer, signature } = snapshot
  return {
    number: number.toString(),
    time_ms: time.toString(),
    root,
    sum_atomic: sum.toString(),
    leaves: leaves.toString(),
    previous,
    block: block.toString(),
    on_chain_atomic: onChain.toString(),
    issuer,
    signature,
  }
}

export function writeLiabilityProof({ domain, snapshot, leaf, path }: LiabilityProof): LiabilityProofDocument {
  return {
    object: proofObject,
    version: proofVersion,
    domain: writeDomain(domain),
    snapshot: writeSnapshot(snapshot),
    leaf:
      leaf === undefined
        ? null
        : {
            account: leaf.account,
            amount_atomic: leaf.amount.toString(),
            salt: leaf.salt,
            place: leaf.place.toString(),
          },
    path: path.map(({ hash, sum }) => ({ hash: toHex(hash), sum_atomic: sum.toString() })),
  }
}

/** Parses an untrusted document. Verifies nothing. Negative amounts are read, so that the verdict can name them. */
export function readLiabilityProof(value: unknown): LiabilityProof {
  const fields = readFields(value, 'the proof', ['object', 'version', 'domain', 'snapshot', 'leaf', 'path'])
  if (fields.object !== proofObject) throw new InvalidReceiptError(`"object" is not "${proofObject}"`)
  if (fields.version !== proofVersion) {
    throw new InvalidReceiptError(`it has another version; this program verifies version ${proofVersion}`)
  }
  const { path } = fields
  if (!Array.isArray(path) || path.length > treeHeightMax) {
    throw new InvalidReceiptError(`"path" is not a list of at most ${treeHeightMax} nodes`)
  }
  return {
    domain: readDomain(fields.domain),
    snapshot: readSnapshot(fields.snapshot),
    ...(fields.leaf === null ? {} : { leaf: readLeaf(fields.leaf) }),
    path: path.map((item) => {
      const node = readFields(item, 'a node of "path"', ['hash', 'sum_atomic'])
      return { hash: fromHex(readHex(node, 'hash', 32), 32), sum: readSum(node, 'sum_atomic') }
    }),
  }
}

function readSnapshot(value: unknown): SignedSnapshot {
  const integers = ['number', 'time_ms', 'sum_atomic', 'leaves', 'block', 'on_chain_atomic']
  const fields = readFields(value, '"snapshot"', [...integers, 'root', 'previous', 'issuer', 'signature'])
  return {
    number: readInteger(fields, 'number', 0n, uint64Max),
    time: readInteger(fields, 'time_ms', 0n, instantMax),
    root: readHex(fields, 'root', 32),
    sum: readSum(fields, 'sum_atomic'),
    leaves: readInteger(fields, 'leaves', 0n, 2n ** BigInt(treeHeightMax)),
    previous: readHex(fields, 'previous', 32),
    block: readInteger(fields, 'block', 0n, uint64Max),
    onChain: readInteger(fields, 'on_chain_atomic', 0n, sumMax),
    issuer: readHex(fields, 'issuer', 20),
    signature: readHex(fields, 'signature', 65),
  }
}

function readLeaf(value: unknown): ProvenLeaf {
  const fields = readFields(value, '"leaf"', ['account', 'amount_atomic', 'salt', 'place'])
  const { account } = fields
  if (typeof account !== 'string' || !/^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/.test(account)) {
    throw new InvalidReceiptError('"account" is not a UUID')
  }
  return {
    account,
    amount: readSum(fields, 'amount_atomic'),
    salt: readHex(fields, 'salt', 32),
    place: readInteger(fields, 'place', 0n, uint64Max),
  }
}

function readSum(fields: Fields, name: string): bigint {
  return readInteger(fields, name, -sumMax, sumMax)
}

export type LiabilityCheck = Check<'leaf' | 'path' | 'snapshot' | 'signature'>

/**
 * Verifies a proof by itself: the leaf is part of the sum that the issuer signed. The caller compares what only the customer knows: the
 * account, the balance at that time, and the issuer. Throws an InvalidReceiptError when the value is not a proof at all.
 */
export async function verifyLiabilityProof(value: unknown, crypto: ReceiptCrypto): Promise<readonly LiabilityCheck[]> {
  const proof = readLiabilityProof(value)
  const { snapshot, domain } = proof
  const digest = snapshotDigest(snapshot, domain, crypto.keccak256)
  const signer = isCanonicalSignature(snapshot.signature)
    ? await crypto.recoverAddress(digest, snapshot.signature)
    : undefined
  return [
    ...checkLeaf(proof, crypto.keccak256),
    check(
      'snapshot',
      snapshot.number === snapshotNumber(snapshot.time),
      `${nameOf(snapshot)} owes ${format(fromAtomic(snapshot.sum))} USDC in ${snapshot.leaves} leaves; the chain had ${format(fromAtomic(snapshot.onChain))} USDC for them at block ${snapshot.block}.`,
      `Snapshot ${snapshot.number} was not taken in its minute: its time is ${snapshot.time} ms.`,
    ),
    check(
      'signature',
      signer === snapshot.issuer,
      `The snapshot is signed by ${snapshot.issuer}.`,
      `The snapshot is signed by ${signer ?? 'no valid key'}, not by ${snapshot.issuer}.`,
    ),
  ]
}

function checkLeaf({ leaf, path, snapshot }: LiabilityProof, keccak256: Keccak256): readonly LiabilityCheck[] {
  if (leaf === undefined) return [check('leaf', false, '', 'The account has no leaf: the snapshot owes it nothing.')]
  const { account, amount, place } = leaf
  const negative = [amount, snapshot.sum, ...path.map(({ sum }) => sum)].find((sum) => sum < 0n)
  if (negative !== undefined) {
    return [
      check('leaf', false, '', `The proof has a negative amount, ${negative}: it would hide what others are owed.`),
    ]
  }
  const height = treeHeight(Number(snapshot.leaves))
  const isPlaced = place < snapshot.leaves && path.length === height
  const isOwed = check(
    'leaf',
    isPlaced,
    `Account ${account} is owed ${format(fromAtomic(amount))} USDC: leaf ${place + 1n} of ${snapshot.leaves}.`,
    `A path of ${path.length} nodes from leaf ${place + 1n} does not fit a tree of ${snapshot.leaves} leaves.`,
  )
  if (!isPlaced) return [isOwed]
  const hasher = createTreeHasher(keccak256)
  const top = topOfPath(hasher.leaf({ ...leaf, salt: fromHex(leaf.salt, 32) }), place, path, hasher)
  const root = toHex(top.hash)
  const isRoot = root === snapshot.root && top.sum === snapshot.sum
  return [
    isOwed,
    check(
      'path',
      isRoot,
      `The leaf is part of the sum under the root ${root}.`,
      `The path leads to the root ${root} with the sum ${top.sum}; the snapshot has ${snapshot.root} with ${snapshot.sum}.`,
    ),
  ]
}

/** Whether one service can have shown all of these customers the same tree at each time. */
export function compareSnapshots(proofs: readonly LiabilityProof[], keccak256: Keccak256): Check<'trees'> {
  const seen = proofs.map(({ snapshot, domain }) => ({
    snapshot,
    digest: toHex(snapshotDigest(snapshot, domain, keccak256)),
    service: `${snapshot.issuer} on chain ${domain.chainId} at ${domain.gatewayWallet}`,
  }))
  const services = [...new Set(seen.map(({ service }) => service))]
  if (services.length > 1)
    return check('trees', false, '', `The proofs are of several services: ${services.join('; ')}.`)
  for (const [index, one] of seen.entries()) {
    for (const other of seen.slice(index + 1)) {
      if (one.digest === other.digest) continue
      const [first, second] = [one.snapshot, other.snapshot]
      if (first.number === second.number) {
        return check(
          'trees',
          false,
          '',
          `TWO TREES: snapshot ${first.number} has two roots, ${first.root} and ${second.root}.`,
        )
      }
      if (first.previous === second.previous && first.previous !== zeroHash) {
        const text = `Snapshots ${first.number} and ${second.number} both follow ${first.previous}: there are two histories, or the database was restored in between.`
        return check('trees', false, '', text)
      }
    }
  }
  const count = new Set(seen.map(({ digest }) => digest)).size
  return check(
    'trees',
    true,
    `${proofs.length} proofs of ${count} ${count === 1 ? 'snapshot' : 'snapshots'}; none has two trees.`,
    '',
  )
}

function nameOf({ number, time }: Snapshot): string {
  return `Snapshot ${number} of ${new Date(Number(time)).toISOString()}`
}

function check<Name extends string>(name: Name, ok: boolean, passed: string, failed: string): Check<Name> {
  return { name, ok, pending: false, detail: ok ? passed : failed }
}
