import { createHmac, randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import {
  findLatestSnapshot,
  findPart,
  findSnapshot,
  type LeafPart,
  listParts,
  readLiabilities,
  type SnapshotRow,
  storeSnapshot,
} from '../ledger/liabilities.ts'
import { toHex, zeroHash } from '../receipts/hex.ts'
import {
  type LiabilityProof,
  type SignedSnapshot,
  snapshotDigest,
  snapshotNumber,
} from '../receipts/liability-proof.ts'
import {
  createTreeHasher,
  type Leaf,
  type SumNode,
  siblingsOf,
  treeHeight,
  treeLevels,
} from '../receipts/liability-tree.ts'
import type { ReceiptDomain } from '../receipts/typed-data.ts'
import type { Address } from '../signer/address.ts'
import { keccak256 } from '../signer/keccak.ts'
import { recoverAddress } from '../signer/secp256k1.ts'
import type { Signer } from '../signer/signer.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'
import { findPublishedTerms } from './published-terms.ts'
import type { SolvencyReport } from './solvency.ts'

/** The leaves of one part: a path hashes one part and the tops of the others. */
const partHeight = 9
const partLeaves = 2 ** partHeight

export type LiabilityParts = {
  readonly database: Database
  readonly signer: Pick<Signer, 'signLiabilities'>
  readonly signingTerms: Pick<SigningTerms, 'chainId' | 'gatewayWallet'>
  readonly issuer: Address
}

/**
 * Takes a snapshot when a new hour has begun or an operator wants one, soon after a comparison with the chain. Call it under the
 * settlement lock. Returns whether it took one.
 */
export async function takeDueSnapshot(parts: LiabilityParts): Promise<boolean> {
  const [due] = await parts.database.query<{ report: SolvencyReport }>(
    `select s.report
       from solvency s
       left join (select number, taken_at from liability_snapshots order by number desc limit 1) l on true
      where s.checked_at > clock_timestamp() - interval '1 minute'
        and (l.number is null
             or (floor(extract(epoch from clock_timestamp()) / 60) > l.number
                 and (floor(extract(epoch from clock_timestamp()) / 3600) > l.number / 60 or s.snapshot_wanted_at > l.taken_at)))`,
  )
  return due !== undefined && takeSnapshot(parts, due.report)
}

/**
 * Makes the tree over all liabilities, has it signed, and stores it. False while nothing is owed and nothing ever was. If it is
 * interrupted between the signature and the row, the signer refuses the next one until the minute is over.
 */
export async function takeSnapshot(
  { database, signer, signingTerms, issuer }: LiabilityParts,
  report: Pick<SolvencyReport, 'block' | 'on_chain_atomic' | 'seller_atomic' | 'owed_back_atomic'>,
): Promise<boolean> {
  const [before, owed] = await Promise.all([findLatestSnapshot(database), readLiabilities(database)])
  if (before === undefined && owed.accounts.length === 0) return false
  const saltKey = randomBytes(32)
  const { top, parts } = await makeTree(owed, saltKey)
  if (top.sum !== owed.booked)
    throw new Error(`The accounts are owed ${top.sum}, but their running totals say ${owed.booked}.`)
  const [seller, owedBack] = [BigInt(report.seller_atomic), BigInt(report.owed_back_atomic)]
  const time = BigInt(owed.takenAt.getTime())
  const snapshot = {
    number: snapshotNumber(time),
    time,
    root: toHex(top.hash),
    sum: top.sum,
    leaves: BigInt(owed.accounts.length),
    previous: before === undefined ? zeroHash : toHex(before.digest),
    block: BigInt(report.block),
    // The rest of the seller's balance is revenue: the operator may take it.
    onChain: BigInt(report.on_chain_atomic) + (seller < owedBack ? seller : owedBack),
  }
  const digest = Buffer.from(snapshotDigest(snapshot, domainOf(signingTerms), keccak256))
  const signature = await signer.signLiabilities(snapshot)
  if (recoverAddress(digest, signature) !== issuer)
    throw new Error(`The signature of snapshot ${snapshot.number} is not one of ${issuer}.`)
  const { number, sum, leaves, block, onChain } = snapshot
  const row = {
    number,
    takenAt: owed.takenAt,
    root: Buffer.from(top.hash),
    sum,
    leaves,
    booked: owed.booked,
    block,
    onChain,
    previous: Buffer.from(snapshot.previous.slice(2), 'hex'),
    digest,
    signature: Buffer.from(signature.slice(2), 'hex'),
    saltKey,
  }
  await storeSnapshot(database, row, parts)
  return true
}

/** The tree, in the order of the salts, so that a place says nothing about an account. */
export async function makeTree(
  { accounts, amounts }: Pick<LeafPart, 'accounts' | 'amounts'>,
  saltKey: Buffer,
): Promise<{ readonly top: SumNode; readonly parts: readonly LeafPart[] }> {
  const hasher = createTreeHasher(keccak256)
  const height = treeHeight(accounts.length)
  const leaves: (Leaf & { readonly salt: Buffer })[] = []
  const parts: LeafPart[] = []
  for (const [index, account] of accounts.entries()) {
    leaves.push({ salt: saltOf(saltKey, account), account, amount: amounts[index]! })
    // The heartbeat of the settlement lock and other jobs run in between.
    if (index % partLeaves === 0) await nextTurn()
  }
  leaves.sort((one, other) => one.salt.compare(other.salt))
  for (let start = 0; start < leaves.length; start += partLeaves) {
    const part = leaves.slice(start, start + partLeaves)
    const levels = treeLevels(part.map(hasher.leaf), { from: 0, to: Math.min(height, partHeight) }, hasher)
    const { hash, sum } = levels.at(-1)![0]!
    parts.push({
      firstSalt: part[0]!.salt,
      hash: Buffer.from(hash),
      sum,
      accounts: part.map(({ account }) => account),
      amounts: part.map(({ amount }) => amount),
    })
    await nextTurn()
  }
  return { top: treeLevels(parts, { from: Math.min(height, partHeight), to: height }, hasher).at(-1)![0]!, parts }
}

/** Nothing is stored for a salt. */
function saltOf(saltKey: Buffer, account: string): Buffer {
  return createHmac('sha256', saltKey).update(account).digest()
}

/** The proof of what an account was owed in a snapshot, the latest by default. */
export async function proveLiability(
  database: Database,
  { accountId }: AccountRef,
  number?: string,
): Promise<LiabilityProof> {
  const [published, row] = await Promise.all([
    findPublishedTerms(database),
    number === undefined ? findLatestSnapshot(database) : findSnapshot(database, BigInt(number)),
  ])
  if (published === undefined || row === undefined) throw new NoSnapshotError(number)
  const proof = { domain: domainOf(published.terms), snapshot: readSnapshot(row, published.issuer), path: [] }
  if (row.leaves === 0n) return proof
  const tops = await listParts(database, row.number)
  if (tops.length === 0) throw new NoSnapshotError(number)
  const salt = saltOf(row.saltKey, accountId)
  const part = tops.findLastIndex(({ firstSalt }) => firstSalt.compare(salt) <= 0)
  if (part === -1) return proof
  const found = await findPart(database, row.number, part)
  if (found === undefined) throw new NoSnapshotError(number)
  const { accounts, amounts } = found
  const place = accounts.indexOf(accountId)
  if (place === -1) return proof
  const hasher = createTreeHasher(keccak256)
  const height = treeHeight(Number(row.leaves))
  const [low, high] = [Math.min(height, partHeight), height]
  const leaves = accounts.map((account, index) =>
    hasher.leaf({ salt: saltOf(row.saltKey, account), account, amount: amounts[index]! }),
  )
  const path = [
    ...siblingsOf(treeLevels(leaves, { from: 0, to: low }, hasher), place, 0, hasher),
    ...siblingsOf(treeLevels(tops, { from: low, to: high }, hasher), part, low, hasher),
  ]
  const leaf = {
    account: accountId,
    amount: amounts[place]!,
    salt: toHex(salt),
    place: BigInt(part * partLeaves + place),
  }
  return { ...proof, leaf, path }
}

/** The latest snapshot, signed. Undefined before the first. */
export async function findPublishedSnapshot(database: Database): Promise<SignedSnapshot | undefined> {
  const [published, row] = await Promise.all([findPublishedTerms(database), findLatestSnapshot(database)])
  return published && row && readSnapshot(row, published.issuer)
}

function readSnapshot(row: SnapshotRow, issuer: Address): SignedSnapshot {
  const { number, takenAt, root, sum, leaves, previous, block, onChain, signature } = row
  return {
    number,
    time: BigInt(takenAt.getTime()),
    root: toHex(root),
    sum,
    leaves,
    previous: toHex(previous),
    block,
    onChain,
    issuer,
    signature: toHex(signature),
  }
}

function domainOf({ chainId, gatewayWallet }: LiabilityParts['signingTerms']): ReceiptDomain {
  return { chainId: BigInt(chainId), gatewayWallet }
}

class NoSnapshotError extends ServiceError {
  constructor(number: string | undefined) {
    super(
      'not_found',
      number === undefined
        ? 'There is no snapshot of the liabilities yet. The first is taken when an account has a balance.'
        : `Snapshot ${number} does not exist, or its leaves are no longer kept. The latest is in GET /api/solvency.`,
    )
  }
}
