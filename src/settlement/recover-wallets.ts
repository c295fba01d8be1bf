import { createHash } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { creditLostPayment, findAccountAddresses, findKnownTransfers, recordLostRefund } from '../ledger/lost-x402.ts'
import { findWallet } from '../ledger/wallet-accounts.ts'
import type { Address } from '../signer/address.ts'
import { isOwnNonce, nonceOf } from '../signer/nonce.ts'
import type { PaymentTerms } from './authorization.ts'
import type { GatewayClient, GatewayTransfer } from './gateway-client.ts'

export type RecoverWalletsParts = {
  readonly database: Database
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  readonly partitions: number
}

export type WalletRecovery = {
  readonly payments: number
  readonly value: bigint
  readonly refunds: number
  readonly refunded: bigint
  /** Payments of the seller that the ledger cannot explain. */
  readonly unexplained: readonly { readonly account: string; readonly address: string; readonly missing: bigint }[]
  /** Custodial addresses of accounts that were opened after the copy, with what each paid, less what it got back. */
  readonly lostAccounts: ReadonlyMap<string, bigint>
}

/** Pages with known transfers only, after which the search ends. More than one: the order around the time of the copy may differ. */
const copiedPagesMax = 10

/**
 * Records payments and refunds of x402 wallets that were made after the copy. Wallets choose their nonces, so the seller's transfers are
 * read from the gateway, newest first, back to those of the copy. A payment becomes credit in full: the cost of its request is lost with
 * the request. Payments of accounts that were opened after the copy are only reported: they are revenue, and a credit at such an
 * address could not be spent. Idempotent.
 */
export async function recoverWallets(parts: RecoverWalletsParts): Promise<WalletRecovery> {
  const { database, terms, partitions } = parts
  const unexplained: { account: string; address: string; missing: bigint }[] = []
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
    const { id: gatewayId, to: address, amount, state, transactionHash } = transfer
    if (lostAccounts.has(address)) {
      countLost(address, -amount)
      continue
    }
    const wallet = await findWallet(database, address, partitions)
    const sequence = sequenceOf(transfer, wallet.accountId, terms.epoch)
    const lost = { wallet, amount, epoch: terms.epoch, isCompleted: state === 'completed', gatewayId, transactionHash }
    const outcome = sequence === undefined ? 'unpaid' : await recordLostRefund(database, { ...lost, sequence })
    if (outcome === 'unpaid') unexplained.push({ account: wallet.accountId, address, missing: amount })
    if (outcome !== 'recorded') continue
    refunds += 1
    refunded += amount
  }
  return { payments, value, refunds, refunded, unexplained, lostAccounts }
}

/** Newest first. Skips failed transfers and those of accounts. */
async function findUnknown(
  { database, gatewayClient }: RecoverWalletsParts,
  search: { readonly from?: Address; readonly to?: Address },
): Promise<readonly GatewayTransfer[]> {
  const unknown: GatewayTransfer[] = []
  let after: string | undefined
  for (let copiedPages = 0; copiedPages < copiedPagesMax; ) {
    const page = await gatewayClient.listTransfers(search, after)
    if (page.length === 0) break
    const known = await findKnownTransfers(
      database,
      page.map(({ id }) => id),
    )
    const accounts = await findAccountAddresses(
      database,
      page.flatMap(({ from, to }) => [from, to]),
    )
    const more = page.filter(
      ({ id, state, from, to }) => state !== 'failed' && !known.has(id) && !accounts.has(from) && !accounts.has(to),
    )
    unknown.push(...more)
    copiedPages = page.every(({ id }) => known.get(id)?.isOfCopy) ? copiedPages + 1 : 0
    after = page.at(-1)!.id
  }
  return unknown
}

/** Circle may omit the nonce. Then the transfer's id identifies the payment. */
function nonceOfTransfer({ id, nonce }: GatewayTransfer): Buffer {
  return nonce === undefined ? createHash('sha256').update(id).digest() : Buffer.from(nonce.slice(2), 'hex')
}

/** The sequence of a refund to that account; undefined when the transfer is something else. */
function sequenceOf({ nonce }: GatewayTransfer, accountId: string, epoch: number): bigint | undefined {
  if (nonce === undefined) return undefined
  const sequence = BigInt(`0x${nonce.slice(-16)}`)
  return nonceOf('refund', accountId, epoch, sequence) === nonce ? sequence : undefined
}
