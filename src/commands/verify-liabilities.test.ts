import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { accountId, domain, issuer, leafNode, publish, saltFor } from '../../test/support/liabilities.ts'
import { runCommand } from '../../test/support/run-command.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import { toHex } from '../receipts/hex.ts'
import { snapshotDigest, verifyLiabilityProof } from '../receipts/liability-proof.ts'
import type { SumNode } from '../receipts/liability-tree.ts'
import { viemCrypto } from '../receipts/viem-crypto.ts'
import { keccak256 } from '../signer/keccak.ts'
import { verifyCommand } from './verify.ts'

const amounts = [23_980_000n, 5n, 1_000_000n, 7_777n, 12_000_000_000n]
const leaves = amounts.map((amount, index) => leafNode(accountId(index), amount))
const [mine, balance, place] = [accountId(2), amounts[2]!, 2]

function openVerifier(t: TestContext) {
  const folder = temporaryFolder(t)
  return async (...documents: readonly object[]) => {
    const files = documents.map((document, index) => {
      const file = join(folder, `proof-${index}.json`)
      writeFileSync(file, JSON.stringify(document))
      return file
    })
    return runCommand(verifyCommand, [...files, '--issuer', issuer])
  }
}

test('a customer verifies that their balance is part of the signed sum, on the command line and in a browser', async (t) => {
  const verify = openVerifier(t)
  for (const [index, amount] of amounts.entries()) {
    const proof = publish(leaves).proveTo(accountId(index), amount, index)
    const { code, text } = await verify(proof)
    assert.equal(code, 0, text)
    const checks = await verifyLiabilityProof(proof, viemCrypto)
    assert.ok(checks.every(({ ok }) => ok))
  }
  const { text } = await verify(publish(leaves).proveTo(mine, balance, place))
  assert.match(text, /is owed 1 USDC: leaf 3 of 5/)
  assert.match(text, /2025-11-19T14:00:00\.123Z owes 12024\.987782 USDC in 5 leaves/)
  assert.match(text, /Compare the account and the amount with your own/)
})

test('one account alone is a tree too', async (t) => {
  const { code, text } = await openVerifier(t)(publish([leafNode(mine, 9n)]).proveTo(mine, 9n, 0))
  assert.equal(code, 0, text)
})

test('an account that is left out of the sum is found by its owner', async (t) => {
  const verify = openVerifier(t)
  const without = publish(leaves.filter((_, index) => index !== place))
  for (const claimed of [0, 1, 2, 3]) {
    const { code, text } = await verify(without.proveTo(mine, balance, claimed))
    assert.equal(code, 1)
    assert.match(text, /✗ path +The path leads to the root/)
  }
  const none = { ...publish(leaves).proveTo(mine, balance, place), leaf: null, path: [] }
  const { code, text } = await verify(none)
  assert.equal(code, 1)
  assert.match(text, /✗ leaf +The account has no leaf/)
})

test('a balance that is lower in the tree is found by its owner', async (t) => {
  const verify = openVerifier(t)
  const lower = publish(leaves.with(place, leafNode(mine, balance - 1n)))
  assert.match((await verify(lower.proveTo(mine, balance, place))).text, /✗ path/)
  // With the amount of the tree the path is right. The verdict names the amount, which only the customer can compare.
  assert.match((await verify(lower.proveTo(mine, balance - 1n, place))).text, /is owed 0\.999999 USDC/)
})

test('a negative leaf, with which a service would hide what it owes, is found by its neighbours', async (t) => {
  const verify = openVerifier(t)
  const bytes = (amount: bigint) => Buffer.from(BigInt.asUintN(128, amount).toString(16).padStart(32, '0'), 'hex')
  const account = Buffer.from(accountId(9).replaceAll('-', ''), 'hex')
  const salt = Buffer.from(saltFor(accountId(9)).slice(2), 'hex')
  const debt = { hash: keccak256(Buffer.concat([Buffer.from([3]), salt, account, bytes(-900_000n)])), sum: -900_000n }
  const own = leafNode(mine, balance)
  const node = (left: SumNode, right: SumNode) =>
    keccak256(Buffer.concat([Buffer.from([4]), left.hash, bytes(left.sum), right.hash, bytes(right.sum)]))
  const root = toHex(node(own, debt))
  const honest = publish([own, leafNode(accountId(9), 1n)], { root, sum: 100_000n }).proveTo(mine, balance, 0)
  const path = (sum_atomic: string) => [{ hash: toHex(debt.hash), sum_atomic }]
  const plain = await verify({ ...honest, path: path('-900000') })
  assert.equal(plain.code, 1)
  assert.match(plain.text, /✗ leaf +The proof has a negative amount, -900000/)
  const wrapped = await verify({ ...honest, path: path((2n ** 128n - 900_000n).toString()) })
  assert.equal(wrapped.code, 1)
  assert.match(wrapped.text, /"sum_atomic" is not an integer/)
})

test('two trees of one time are found when two customers compare their proofs', async (t) => {
  const verify = openVerifier(t)
  const mineIn = publish(leaves).proveTo(mine, balance, place)
  const theirs = [leafNode(accountId(0), amounts[0]!), leafNode(accountId(1), amounts[1]!)]
  const other = publish(theirs).proveTo(accountId(0), amounts[0]!, 0)
  for (const alone of [mineIn, other]) assert.equal((await verify(alone)).code, 0)
  const both = await verify(mineIn, other)
  assert.equal(both.code, 1)
  assert.match(both.text, /✗ trees +TWO TREES: snapshot \d+ has two roots/)
  const same = await verify(mineIn, publish(leaves).proveTo(accountId(0), amounts[0]!, 0))
  assert.equal(same.code, 0, same.text)
  assert.match(same.text, /✓ trees +2 proofs of 1 snapshot/)
})

test('a second tree is also found if it claims to be of another minute', async (t) => {
  const verify = openVerifier(t)
  const first = publish(leaves)
  const { time, number } = first.snapshot
  const previous = toHex(snapshotDigest(first.snapshot, domain, keccak256))
  const later = { time: time + 60_000n, number: number + 1n, previous }
  const latest = { time: time + 120_000n, number: number + 2n, previous }
  const proofs = [later, latest].map((changes) => publish(leaves, changes).proveTo(mine, balance, place))
  assert.match((await verify(...proofs)).text, /✗ trees +Snapshots \d+ and \d+ both follow 0x/)
  const chained = await verify(first.proveTo(mine, balance, place), proofs[0]!)
  assert.equal(chained.code, 0, chained.text)
})

test('a proof with any changed field is refused', async (t) => {
  const verify = openVerifier(t)
  const proof = publish(leaves).proveTo(mine, balance, place)
  const flip = (text: string) => {
    const last = text.at(-1)!
    return text.slice(0, -1) + (last === '0' ? '1' : '0')
  }
  const change = (value: unknown, route: readonly (string | number)[]): unknown => {
    const [name, ...rest] = route
    if (name === undefined) return flip(String(value))
    const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as Record<string, unknown>
    copy[name] = change(copy[name], rest)
    return copy
  }
  const routes = [
    ...Object.keys(proof.domain).map((name) => ['domain', name]),
    ...Object.keys(proof.snapshot).map((name) => ['snapshot', name]),
    ...Object.keys(proof.leaf!).map((name) => ['leaf', name]),
    ...proof.path.flatMap((_, index) => [
      ['path', index, 'hash'],
      ['path', index, 'sum_atomic'],
    ]),
  ]
  assert.equal(routes.length, 2 + 10 + 4 + 6)
  for (const route of routes) {
    const { code, text } = await verify(change(proof, route) as object)
    assert.equal(code, 1, `${route.join('.')}: ${text}`)
  }
  const shorter = { ...proof, path: proof.path.slice(1) }
  assert.match((await verify(shorter)).text, /does not fit a tree of 5 leaves/)
  assert.equal((await verify({ ...proof, extra: 1 })).code, 1)
  assert.equal((await verify({ ...proof, version: 2 })).code, 1)
})

test('several receipts are refused with what can be given', async (t) => {
  const { code, text } = await openVerifier(t)({ object: 'receipt' }, { object: 'receipt' })
  assert.equal(code, 1)
  assert.match(text, /"object" is not "liability_proof"|the proof/)
})
