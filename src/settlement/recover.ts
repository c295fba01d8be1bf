import { createHash } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { bookLostPayments, type LostPayment, readNextPayment } from '../ledger/lost-payments.ts'
import { bookLostWithdrawals, type LostWithdrawal, listOrders, sumUnderWay } from '../ledger/lost-withdrawals.ts'
import type { Address } from '../signer/address.ts'
import { type NonceUse, nonceOf, saltOf } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import { transferSpecHash } from '../signer/typed-data.ts'
import type { PaymentTerms } from './authorization.ts'
import type { Chain, ChainWithdrawal } from './chain.ts'
import type { GatewayClient } from './gateway-client.ts'
import { recoverWallets, type WalletRecovery } from './recover-wallets.ts'
import { findOwed, type OwedAccount } from './solvency.ts'

export type RecoverParts = {
  readonly database: Database
  readonly chain: Chain
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  readonly signingTerms: SigningTerms
  readonly partitions: number
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
  readonly wallets: WalletRecovery
}

export type BookedWithdrawal = LostWithdrawal & { readonly account: string }

/** Payments that failed leave gaps. Once nothing is missing, a gap of so many ends the search. */
const explainedGapMax = 64
const concurrencyMax = 16
const blocksMax = 1_000n

/**
 * Brings a ledger that was restored from an older copy up to what the chain and the gateway have. Withdrawals are in the chain's
 * log. Payments, and credit that was paid back, are asked for nonce by nonce, of accounts that have not there what the books say.
 * Wallets are recovered from the gateway's list of transfers. What an account has lost is booked whole or not at all: the search begins at the first nonce that the books have not given out,
 * and would pass over what was left behind. Running it again changes nothing.
 */
export async function recoverPayments(parts: RecoverParts): Promise<Recovery> {
  const owed = await findOwed(parts.database)
  const paidOut = await findPaidOut(parts, owed)
  const balances = await parts.gatewayClient.balances(owed.map(({ address }) => address as Address))
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
      const found = await findLost(parts, account, missing, onNonces)
      const paid = sumOf(found)
      await parts.database.transaction(async (connection) => {
        await bookLostWithdrawals(connection, account, lost)
        await bookLostPayments(connection, account, found)
      })
      payments += found.length
      value += paid
      withdrawals.push(...lost.map((withdrawal) => ({ ...withdrawal, account: account.id })))
      missing -= paid
    }
    if (!(await isExplained(parts.database, account, missing))) {
      unexplained.push({ account: account.id, address, missing })
    }
    parts.onProgress(index + 1, owed.length, 0)
  }
  const wallets = await recoverWallets(parts)
  return { payments, value, withdrawals, unexplained: [...unexplained, ...wallets.unexplained], wallets }
}

/** More than is owed may be there while withdrawals are under way, and no less. */
async function isExplained(database: Database, account: OwedAccount, missing: bigint): Promise<boolean> {
  return missing === 0n || (missing < 0n && -missing <= (await sumUnderWay(database, account)))
}

function sumOf(payments: readonly LostPayment[]): bigint {
  return payments.reduce((sum, payment) => sum + payment.value, 0n)
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

/**
 * The search ends at a gap, and not when payments explain what is missing: one that a payment of the seller made good would stay
 * unknown, and its number would be given out again. While something is missing the gap is a longer one.
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

/** The payment of that number as the gateway has it: of the account, or of the seller to the account. */
async function findPayment(
  { gatewayClient, terms }: RecoverParts,
  account: OwedAccount,
  number: bigint,
): Promise<readonly LostPayment[]> {
  const address = account.address as Address
  const { epoch, seller } = terms
  const ask = async (use: NonceUse, from: Address, to: Address, sign: bigint) => {
    const transfer = await gatewayClient.findTransfer(from, nonceOf(use, account.id, epoch, number))
    if (transfer === undefined || transfer.state === 'failed' || transfer.to !== to) return []
    const state = transfer.state === 'confirmed' ? 'batched' : transfer.state
    const { id: gatewayId, batch, transactionHash } = transfer
    return [{ number, epoch, value: sign * transfer.amount, state, gatewayId, batch, transactionHash }]
  }
  return [...(await ask('authorization', address, seller, 1n)), ...(await ask('return', seller, address, -1n))]
}
