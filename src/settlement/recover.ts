import { blockRanges } from '../chain/node.ts'
import type { Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { bookLostPayments, type LostPayment, readNextPayment } from '../ledger/lost-payments.ts'
import { bookLostWithdrawals, type LostWithdrawal, listWithdrawals, sumUnderWay } from '../ledger/lost-withdrawals.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf, saltOf, type TransferOperation } from '../signer/nonce.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import { encodedSpecHash, transferSpecHash } from '../signer/typed-data.ts'
import type { PaymentTerms } from './authorization.ts'
import type { Chain, ChainWithdrawal } from './chain.ts'
import { type GatewayClient, ledgerStateOf } from './gateway-client.ts'
import { recoverWallets, type WalletRecovery } from './recover-wallets.ts'
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

export type Recovery = {
  readonly payments: number
  readonly value: bigint
  /** The operator should check them: an unknown recipient means that someone else has the account's key. */
  readonly withdrawals: readonly BookedWithdrawal[]
  /** Accounts whose balance differs from what payments and withdrawals explain. Positive: money is missing. */
  readonly unexplained: readonly { readonly account: string; readonly address: string; readonly missing: bigint }[]
  readonly wallets: WalletRecovery
}

export type BookedWithdrawal = LostWithdrawal & { readonly account: string }

/** Failed payments leave gaps. Once nothing is missing, a gap of this length ends the search. */
const explainedGapMax = 64
const concurrencyMax = 16

/**
 * Brings a ledger that was restored from an older copy up to date with the chain and the gateway. Withdrawals are in the chain's logs.
 * Payments and refunds are requested nonce by nonce, for accounts whose balance differs from the ledger. Wallets are recovered from
 * the gateway's list of transfers. The payments of an account are recorded all or not at all: the next search begins at the first
 * nonce that the ledger does not know, and would skip what was left out. Idempotent.
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

/** Open withdrawals may leave more than is owed at the gateway, never less. */
async function isExplained(database: Database, account: OwedAccount, missing: bigint): Promise<boolean> {
  return missing === 0n || (missing < 0n && -missing <= (await sumUnderWay(database, account)))
}

function sumOf(payments: readonly LostPayment[]): bigint {
  return payments.reduce((sum, payment) => sum + payment.value, 0n)
}

/** Withdrawals in the chain's logs since the copy that the ledger does not know, by depositor. */
async function findPaidOut(
  { database, chain, signingTerms, copiedAt }: RecoverParts,
  accounts: readonly OwedAccount[],
): Promise<ReadonlyMap<string, readonly LostWithdrawal[]>> {
  if (copiedAt === undefined) return new Map()
  const depositors = accounts.map(({ address }) => address as Address)
  const head = await chain.finalBlock()
  const logs: ChainWithdrawal[] = []
  for (const [first, last] of blockRanges(copiedAt, head)) {
    logs.push(...(await chain.withdrawals(depositors, first, last)))
  }
  const lost = new Map<string, readonly LostWithdrawal[]>()
  for (const [depositor, group] of Map.groupBy(logs, (log) => log.depositor)) {
    const account = accounts.find(({ address }) => address === depositor)!
    const known = await listWithdrawals(database, account)
    const ids = new Set(known.map(({ id }) => id))
    const hashes = new Set(known.flatMap((withdrawal) => specHashesOf(signingTerms, depositor, withdrawal)))
    const unknown = group
      .filter(({ specHash }) => !hashes.has(specHash))
      .map((log) => ({ ...log, id: derivedId(`penny withdrawal ${chain.chainId}:${log.block}:${log.logIndex}`) }))
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
