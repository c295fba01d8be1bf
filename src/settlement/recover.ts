import { createHash } from 'node:crypto'
import { blockRanges } from '../chain/node.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { lockAccount } from '../db/lock-account.ts'
import {
  bookLostPayments,
  bookLostRefund,
  bookLostTransfer,
  creditLostPayment,
  findAccountAddresses,
  findKnownTransfers,
  type LostPayment,
  type LostTransfer,
  listWithdrawals,
  readNextPayment,
} from '../ledger/lost-transfers.ts'
import { findWallet } from '../ledger/wallet-accounts.ts'
import type { Address } from '../signer/address.ts'
import { isOwnNonce, nonceOf, saltOf, type TransferOperation } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import { encodedSpecHash, transferSpecHash } from '../signer/typed-data.ts'
import type { PaymentTerms } from './authorization.ts'
import type { Chain, ChainWithdrawal } from './chain.ts'
import { type GatewayClient, type GatewayTransfer, ledgerStateOf } from './gateway-client.ts'
import { findOwed, type OwedAccount } from './solvency.ts'

export type RecoverParts = {
  readonly database: Database
  readonly chain: Chain
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  readonly signingTerms: SigningTerms
  readonly partitions: number
  /** The last block that the copy had read; undefined when it is not known. */
  readonly copiedAt: bigint | undefined
  /** This many unused nonces in a row end the search of an account while money is missing. */
  readonly gapMax: number
  /** Called after each account, and during a search with the number of nonces that were requested so far. */
  readonly onProgress: (done: number, all: number, nonces: number) => void
}

/** An account whose balance differs from what payments and withdrawals explain. Positive: money is missing. */
type Unexplained = { readonly account: string; readonly address: string; readonly missing: bigint }

export type Recovery = {
  readonly payments: number
  readonly value: bigint
  /** The operator should check them: an unknown recipient means that someone else has the account's key. */
  readonly withdrawals: readonly LostTransfer[]
  readonly unexplained: readonly Unexplained[]
  readonly wallets: WalletRecovery
}

export type WalletRecovery = {
  readonly payments: number
  readonly value: bigint
  readonly refunds: number
  readonly refunded: bigint
  /** Payments of the seller that the ledger cannot explain. */
  readonly unexplained: readonly Unexplained[]
  /** Custodial addresses of accounts that were opened after the copy, with what each paid, less what it got back. */
  readonly lostAccounts: ReadonlyMap<string, bigint>
}

/** Failed payments leave gaps. Once nothing is missing, a gap of this length ends the search. */
const explainedGapMax = 64
const concurrencyMax = 16
/** Pages with known transfers only, after which the search ends. More than one: the order around the time of the copy may differ. */
const copiedPagesMax = 10

/**
 * Brings a ledger that was restored from an older copy up to date with the chain and the gateway. Withdrawals are in the chain's logs.
 * Payments of accounts are found by their nonces, which the ledger computes again, and those of wallets, which choose their nonces, in
 * the gateway's list of transfers. The payments of an account are recorded all or not at all: the next search begins at the first
 * nonce that the ledger does not know, and would skip what was left out. Idempotent.
 */
export async function recoverPayments(parts: RecoverParts): Promise<Recovery> {
  const owed = await findOwed(parts.database)
  const paidOut = await findPaidOut(parts, owed)
  const balances = await parts.gatewayClient.balances(owed.map(({ address }) => address as Address))
  const unexplained: Unexplained[] = []
  const withdrawals: LostTransfer[] = []
  let [payments, value] = [0, 0n]
  for (const [index, account] of owed.entries()) {
    const { id, partition, address } = account
    const lost = paidOut.get(address) ?? []
    const gone = lost.reduce((sum, { amount }) => sum + amount, 0n)
    let missing = account.owed - balances.get(address as Address)! - gone
    if (missing !== 0n || lost.length > 0) {
      const onNonces = (nonces: number) => parts.onProgress(index, owed.length, nonces)
      const found = await findLost(parts, account, missing, onNonces)
      await parts.database.transaction(async (connection) => {
        await lockAccount(connection, { partition, accountId: id })
        for (const withdrawal of lost) await bookLostTransfer(connection, withdrawal)
        await bookLostPayments(connection, account, found)
      })
      const paid = sumOf(found)
      payments += found.length
      value += paid
      withdrawals.push(...lost)
      missing -= paid
    }
    if (!(await isExplained(parts.database, account, missing))) unexplained.push({ account: id, address, missing })
    parts.onProgress(index + 1, owed.length, 0)
  }
  const wallets = await recoverWallets(parts)
  return { payments, value, withdrawals, unexplained: [...unexplained, ...wallets.unexplained], wallets }
}

/** Open withdrawals may leave more than is owed at the gateway, never less: they may not have been executed. */
async function isExplained(database: Database, account: OwedAccount, missing: bigint): Promise<boolean> {
  if (missing >= 0n) return missing === 0n
  const open = (await listWithdrawals(database, account)).filter(({ isOpen }) => isOpen)
  return -missing <= open.reduce((sum, { amount }) => sum + amount, 0n)
}

function sumOf(payments: readonly LostPayment[]): bigint {
  return payments.reduce((sum, { value }) => sum + value, 0n)
}

/** Withdrawals in the chain's logs since the copy that the ledger does not know, by depositor. */
async function findPaidOut(
  { database, chain, signingTerms, copiedAt }: RecoverParts,
  accounts: readonly OwedAccount[],
): Promise<ReadonlyMap<string, readonly LostTransfer[]>> {
  if (copiedAt === undefined) return new Map()
  const depositors = accounts.map(({ address }) => address as Address)
  const head = await chain.finalBlock()
  const logs: ChainWithdrawal[] = []
  for (const [first, last] of blockRanges(copiedAt, head)) {
    logs.push(...(await chain.withdrawals(depositors, first, last)))
  }
  const lost = new Map<string, readonly LostTransfer[]>()
  for (const [depositor, group] of Map.groupBy(logs, (log) => log.depositor)) {
    const account = accounts.find(({ address }) => address === depositor)!
    const known = await listWithdrawals(database, account)
    const ids = new Set(known.map(({ id }) => id))
    const hashes = new Set(known.flatMap((withdrawal) => specHashesOf(signingTerms, depositor, withdrawal)))
    const unknown = group
      .filter(({ specHash }) => !hashes.has(specHash))
      .map(({ block, logIndex, value, fee, recipient, transactionHash }): LostTransfer => {
        const id = derivedId(`penny withdrawal ${chain.chainId}:${block}:${logIndex}`)
        const { partition, id: accountId } = account
        const amount = value + fee
        const facts = { amount, fee, counterparty: recipient, transactionHash }
        return { id, partition, accountId, kind: 'withdrawal', state: 'confirmed', ...facts }
      })
    lost.set(
      depositor,
      unknown.filter(({ id }) => !ids.has(id)),
    )
  }
  return lost
}

/** As our own contract logs it, and as Circle's does. */
function specHashesOf(
  terms: SigningTerms,
  depositor: Address,
  { id, value, recipient }: { readonly id: string; readonly value: bigint; readonly recipient: string },
): readonly string[] {
  const paying = { depositor, recipient: recipient as Address, value, maxFee: 0n, salt: saltOf('withdrawal', id) }
  const { spec } = burnIntent(terms, paying)
  return [`0x${transferSpecHash(spec).toString('hex')}`, encodedSpecHash(spec)]
}

/**
 * The search ends at a gap, not when the found payments explain the missing amount: a payment that a seller's payment has offset would
 * stay unknown, and its number would be used again. While money is missing, the gap is longer.
 */
async function findLost(
  parts: RecoverParts,
  account: OwedAccount,
  missing: bigint,
  onNonces: (asked: number) => void,
): Promise<readonly LostPayment[]> {
  const { database, gapMax } = parts
  const found: LostPayment[] = []
  const isWhole = () => isExplained(database, account, missing - sumOf(found))
  const first = await readNextPayment(database, account)
  let next = first
  for (let gap = 0; gap < explainedGapMax || (gap < gapMax && !(await isWhole())); ) {
    const numbers = Array.from({ length: concurrencyMax }, (_, offset) => next + BigInt(offset))
    const more = (await Promise.all(numbers.map((number) => findPayment(parts, account, number)))).flat()
    found.push(...more)
    gap = more.length > 0 ? 0 : gap + concurrencyMax
    next += BigInt(concurrencyMax)
    onNonces(Number(next - first))
  }
  return found
}

/** The gateway's transfer for that payment number: from the account, or from the seller to the account. */
async function findPayment(
  { gatewayClient, terms }: RecoverParts,
  account: OwedAccount,
  number: bigint,
): Promise<readonly LostPayment[]> {
  const address = account.address as Address
  const { epoch, seller } = terms
  const ask = async (use: TransferOperation, from: Address, to: Address, sign: bigint) => {
    const transfer = await gatewayClient.findTransfer(from, nonceOf(use, account.id, epoch, number))
    if (transfer === undefined || transfer.state === 'failed' || transfer.to !== to) return []
    const state = ledgerStateOf(transfer.state)
    const { id: gatewayId, batch, transactionHash } = transfer
    return [{ number, epoch, value: sign * transfer.amount, state, gatewayId, batch, transactionHash }]
  }
  return [...(await ask('authorization', address, seller, 1n)), ...(await ask('return', seller, address, -1n))]
}

/**
 * Records payments and refunds of x402 wallets that were made after the copy. Wallets choose their nonces, so the seller's transfers are
 * read from the gateway, newest first, back to those of the copy. A payment becomes credit in full: the cost of its request is lost with
 * the request. Payments of accounts that were opened after the copy are only reported: they are revenue, and a credit at such an
 * address could not be spent. Idempotent.
 */
async function recoverWallets(parts: RecoverParts): Promise<WalletRecovery> {
  const { database, terms, partitions } = parts
  const unexplained: Unexplained[] = []
  const lostAccounts = new Map<string, bigint>()
  const countLost = (address: string, paid: bigint) =>
    lostAccounts.set(address, (lostAccounts.get(address) ?? 0n) + paid)
  let [payments, value, refunds, refunded] = [0, 0n, 0, 0n]
  for (const transfer of await findUnknown(parts, { to: terms.seller })) {
    // The service made this payment for an account. An address does not tell whether it is custodial; the nonce does.
    if (transfer.nonce !== undefined && isOwnNonce(transfer.nonce)) {
      countLost(transfer.from, transfer.amount)
      continue
    }
    const wallet = await findWallet(database, transfer.from, partitions)
    const lost = { wallet, nonce: nonceOfTransfer(transfer), value: transfer.amount, gatewayId: transfer.id }
    if (!(await creditLostPayment(database, lost))) continue
    payments += 1
    value += transfer.amount
  }
  for (const transfer of (await findUnknown(parts, { from: terms.seller })).toReversed()) {
    const { to: address, amount } = transfer
    if (lostAccounts.has(address)) {
      countLost(address, -amount)
      continue
    }
    const { partition, accountId } = await findWallet(database, address, partitions)
    const lost = lostRefund(transfer, { partition, accountId }, terms.epoch)
    const outcome = lost === undefined ? 'unpaid' : await bookLostRefund(database, lost)
    if (outcome === 'unpaid') unexplained.push({ account: accountId, address, missing: amount })
    if (outcome !== 'recorded') continue
    refunds += 1
    refunded += amount
  }
  return { payments, value, refunds, refunded, unexplained, lostAccounts }
}

/** Newest first. Skips failed transfers and those of accounts. */
async function findUnknown(
  { database, gatewayClient }: RecoverParts,
  search: { readonly from?: Address; readonly to?: Address },
): Promise<readonly GatewayTransfer[]> {
  const unknown: GatewayTransfer[] = []
  let after: string | undefined
  for (let copiedPages = 0; copiedPages < copiedPagesMax; ) {
    const page = await gatewayClient.listTransfers(search, after)
    if (page.length === 0) break
    const ids = page.map(({ id }) => id)
    const known = await findKnownTransfers(database, ids)
    const addresses = page.flatMap(({ from, to }) => [from, to])
    const accounts = await findAccountAddresses(database, addresses)
    unknown.push(
      ...page.filter(
        ({ id, state, from, to }) => state !== 'failed' && !known.has(id) && !accounts.has(from) && !accounts.has(to),
      ),
    )
    copiedPages = page.every(({ id }) => known.get(id)?.isOfCopy) ? copiedPages + 1 : 0
    after = page.at(-1)!.id
  }
  return unknown
}

/** Circle may omit the nonce. Then the transfer's id identifies the payment. */
function nonceOfTransfer({ id, nonce }: GatewayTransfer): Buffer {
  return nonce === undefined ? createHash('sha256').update(id).digest() : Buffer.from(nonce.slice(2), 'hex')
}

/** Undefined when the transfer is no refund to that account. */
function lostRefund(
  { id: gatewayId, to, nonce, amount, state, transactionHash }: GatewayTransfer,
  account: AccountRef,
  epoch: number,
): LostTransfer | undefined {
  if (nonce === undefined) return undefined
  const sequence = BigInt(`0x${nonce.slice(-16)}`)
  if (nonceOf('refund', account.accountId, epoch, sequence) !== nonce) return undefined
  const facts = { amount, fee: 0n, counterparty: to, sequence, epoch, gatewayId, transactionHash }
  const id = derivedId(`penny x402 refund ${gatewayId}`)
  return { ...account, id, kind: 'refund', state: state === 'completed' ? 'confirmed' : 'received', ...facts }
}
