import { createHash } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { bookLostPayments, findVoidedSinceFreeze, type LostPayment, readNonceNext } from '../ledger/lost-payments.ts'
import {
  bookLostWithdrawals,
  type LostReturns,
  type LostWithdrawal,
  listOrders,
  sumUnderWay,
} from '../ledger/lost-withdrawals.ts'
import { fromAtomic } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import { type NonceUse, nonceOf, saltOf } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import { transferSpecHash } from '../signer/typed-data.ts'
import type { PaymentTerms } from './authorization.ts'
import type { Chain, ChainWithdrawal } from './chain.ts'
import type { Rail } from './rail.ts'
import { findOwed, type OwedAccount } from './solvency.ts'

export type RecoverParts = {
  readonly database: Database
  readonly chain: Chain
  readonly rail: Rail
  readonly terms: PaymentTerms
  readonly signingTerms: SigningTerms
  /** The last block that the copy had read; undefined when nobody has noted it. */
  readonly copiedAt: bigint | undefined
  /** A gap of so many unused nonces ends the search of an account of which something is missing. */
  readonly gapMax: number
  /** Told after each account that was looked at, and of the next one how many nonces were asked for so far. */
  readonly onProgress: (done: number, all: number, nonces: number) => void
}

export type Recovery = {
  readonly payments: number
  readonly value: bigint
  /** To be looked at: an owner whom nobody knows is one who has the account's key. */
  readonly withdrawals: readonly BookedWithdrawal[]
  /** Accounts of which more has left the gateway than payments and withdrawals explain, or less: then it is below zero. */
  readonly unexplained: readonly { readonly account: string; readonly address: string; readonly missing: bigint }[]
}

export type BookedWithdrawal = LostWithdrawal & { readonly account: string }

/** Requests that were voided have nonces that were never handed in. Once nothing is missing, a gap of so many ends the search. */
const explainedGapMax = 1_024
const atOnceMax = 16
const blocksMax = 1_000n

/**
 * Brings a ledger that was restored from an older copy up to what the chain and the gateway have. Withdrawals are in the chain's
 * log. Payments, and credit that was paid back, are asked for nonce by nonce, of accounts that have not there what the books say.
 * What an account has lost is booked whole or not at all: the search begins at the first nonce that the books have not given out,
 * and would pass over what was left behind. Running it again changes nothing.
 */
export async function recoverPayments(parts: RecoverParts): Promise<Recovery> {
  const owed = await findOwed(parts.database)
  const paidOut = await findPaidOut(parts, owed)
  const balances = await parts.rail.balances(owed.map(({ address }) => address as Address))
  const unexplained: { account: string; address: string; missing: bigint }[] = []
  const withdrawals: BookedWithdrawal[] = []
  let [payments, value] = [0, 0n]
  for (const [index, account] of owed.entries()) {
    const address = account.address as Address
    const lost = paidOut.get(account.address) ?? []
    const gone = lost.reduce((sum, withdrawal) => sum + withdrawal.value + withdrawal.fee, 0n)
    let missing = account.owed - balances.get(address)! - gone
    if (missing !== 0n || lost.length > 0) {
      const onNonces = (nonces: number) => parts.onProgress(index, owed.length, nonces)
      const { found, returns } = await findLost(parts, account, missing, onNonces)
      const booked = await book(parts.database, account, { found, returns }, lost)
      const paid = sumOf(booked)
      payments += booked.length
      value += paid
      withdrawals.push(...lost.map((withdrawal) => ({ ...withdrawal, account: account.id })))
      missing += returns.value - paid
    }
    if (!(await isExplained(parts.database, account, missing))) {
      unexplained.push({ account: account.id, address, missing })
    }
    parts.onProgress(index + 1, owed.length, 0)
  }
  return { payments, value, withdrawals, unexplained }
}

/** More than is owed may be there while withdrawals are under way, and no less. */
async function isExplained(database: Database, account: OwedAccount, missing: bigint): Promise<boolean> {
  return missing === 0n || (missing < 0n && -missing <= (await sumUnderWay(database, account)))
}

function sumOf(payments: readonly LostPayment[]): bigint {
  return payments.reduce((sum, payment) => sum + payment.value, 0n)
}

/** Returns the payments that were news. */
function book(
  database: Database,
  account: OwedAccount,
  { found, returns }: Lost,
  withdrawals: readonly LostWithdrawal[],
): Promise<readonly LostPayment[]> {
  return database.transaction(async (connection) => {
    // Credit that came back may have paid again: without it, payments would take more than there ever was at once.
    await bookLostWithdrawals(connection, account, withdrawals, returns)
    return bookLostPayments(connection, found, Date.now())
  })
}

/** What the chain says was paid out since the copy, by depositor, without what the books know of. */
async function findPaidOut(
  { database, chain, signingTerms, copiedAt }: RecoverParts,
  accounts: readonly OwedAccount[],
): Promise<ReadonlyMap<string, readonly LostWithdrawal[]>> {
  if (copiedAt === undefined) return new Map()
  const depositors = accounts.map(({ address }) => address as Address)
  const head = await chain.finalBlock()
  const logs: ChainWithdrawal[] = []
  for (let first = copiedAt + 1n; first <= head; first += blocksMax) {
    const last = first + blocksMax - 1n < head ? first + blocksMax - 1n : head
    logs.push(...(await chain.withdrawals(depositors, first, last)))
  }
  const lost = new Map<string, readonly LostWithdrawal[]>()
  for (const [depositor, group] of Map.groupBy(logs, (log) => log.depositor)) {
    const account = accounts.find(({ address }) => address === depositor)!
    const orders = await listOrders(database, account)
    const ids = new Set(orders.map(({ id }) => id))
    const hashes = new Set(orders.map((order) => specHashOf(signingTerms, depositor, order)))
    const unknown = group
      .filter(({ specHash }) => !hashes.has(specHash))
      .map((log) => ({ ...log, id: idOf(chain.chainId, log) }))
    lost.set(
      depositor,
      unknown.filter(({ id }) => !ids.has(id)),
    )
  }
  return lost
}

function specHashOf(
  terms: SigningTerms,
  depositor: Address,
  { id, value, recipient }: { readonly id: string; readonly value: bigint; readonly recipient: string },
): string {
  const paying = { depositor, recipient: recipient as Address, value, maxFee: 0n, salt: saltOf('withdrawal', id) }
  const { spec } = burnIntent(terms, paying)
  return `0x${transferSpecHash(spec).toString('hex')}`
}

function idOf(chainId: number, { block, logIndex }: ChainWithdrawal): string {
  const hex = createHash('sha256').update(`penny withdrawal ${chainId}:${block}:${logIndex}`).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

type Lost = { readonly found: readonly LostPayment[]; readonly returns: LostReturns }

/**
 * The search ends at a gap, and not when payments explain what is missing: one that was made good by credit paid back would stay
 * unknown, and its nonce would be given out again. While something is missing the gap is a far longer one: an account whose
 * requests all failed for an hour has left thousands of nonces unused, and what it paid afterwards lies behind them.
 */
async function findLost(
  parts: RecoverParts,
  account: OwedAccount,
  missing: bigint,
  onNonces: (asked: number) => void,
): Promise<Lost> {
  const { database, gapMax } = parts
  const voided = await findVoidedSinceFreeze(database, account.partition, account.id)
  const found = await findPayments(
    parts,
    account,
    voided.map(({ nonce }) => nonce),
  )
  const first = await readNonceNext(database, account.partition, account.id)
  const returns = { value: 0n, nonceNext: first }
  const isWhole = () => isExplained(database, account, missing + returns.value - sumOf(found))
  let next = first
  for (let gap = 0; gap < explainedGapMax || (gap < gapMax && !(await isWhole())); ) {
    const nonces = Array.from({ length: atOnceMax }, (_, offset) => next + BigInt(offset))
    const [more, back] = await Promise.all([findPayments(parts, account, nonces), findReturns(parts, account, nonces)])
    found.push(...more)
    for (const { nonce, value } of back) {
      returns.value += value
      returns.nonceNext = nonce + 1n
    }
    gap = more.length + back.length > 0 ? 0 : gap + atOnceMax
    next += BigInt(atOnceMax)
    onNonces(Number(next - first))
  }
  return { found, returns }
}

async function findPayments(
  parts: RecoverParts,
  account: OwedAccount,
  nonces: readonly bigint[],
): Promise<LostPayment[]> {
  const transfers = await ask(parts, account, 'authorization', nonces)
  return transfers.flatMap((transfer, index) => {
    if (transfer === undefined || transfer.state === 'failed' || transfer.to !== parts.terms.seller) return []
    return [
      {
        partition: account.partition,
        accountId: account.id,
        nonce: nonces[index]!,
        value: fromAtomic(transfer.amount),
        state: transfer.state,
        railId: transfer.id,
        batch: transfer.batch,
        transactionHash: transfer.transactionHash,
      },
    ]
  })
}

async function findReturns(parts: RecoverParts, account: OwedAccount, nonces: readonly bigint[]) {
  const transfers = await ask(parts, account, 'return', nonces)
  return transfers.flatMap((transfer, index) => {
    if (transfer === undefined || transfer.state === 'failed' || transfer.to !== account.address) return []
    return [{ nonce: nonces[index]!, value: transfer.amount }]
  })
}

function ask({ rail, terms }: RecoverParts, account: OwedAccount, use: NonceUse, nonces: readonly bigint[]) {
  const from = use === 'return' ? terms.seller : (account.address as Address)
  return Promise.all(nonces.map((nonce) => rail.findTransfer(from, nonceOf(use, account.id, terms.epoch, nonce))))
}
