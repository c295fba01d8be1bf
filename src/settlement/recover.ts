import type { Database } from '../db/database.ts'
import { bookLostPayment, findVoidedSinceFreeze, type LostPayment, readNonceNext } from '../ledger/lost-payments.ts'
import { fromAtomic } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { PaymentTerms } from './authorization.ts'
import type { Rail } from './rail.ts'
import { findOwed, type OwedAccount } from './solvency.ts'

export type RecoverTools = {
  readonly database: Database
  readonly rail: Rail
  readonly terms: PaymentTerms
  /** Told after each account that was looked at. */
  readonly onProgress: (done: number, all: number) => void
}

export type Recovery = {
  readonly payments: number
  readonly value: bigint
  /** Accounts of which more has left the gateway than payments explain: withdrawals that the copy does not know. */
  readonly unexplained: readonly { readonly account: string; readonly address: string; readonly missing: bigint }[]
}

/** Requests that were voided have nonces that were never handed in: a gap of so many ends the search. */
const gapMax = 1_024
const atOnceMax = 16

/**
 * Brings a ledger that was restored from an older copy up to what the gateway has. Only accounts that have less there than the
 * books say are looked at, nonce by nonce, until what is missing is explained to the unit. Running it again changes nothing.
 */
export async function recoverPayments(tools: RecoverTools): Promise<Recovery> {
  const owed = await findOwed(tools.database)
  const unexplained: { account: string; address: string; missing: bigint }[] = []
  let [payments, value] = [0, 0n]
  for (const [index, account] of owed.entries()) {
    const address = account.address as Address
    let missing = account.owed - (await tools.rail.balance(address))
    if (missing > 0n) {
      for (const payment of await findLost(tools, account, missing)) {
        if (!(await bookLostPayment(tools.database, payment, Date.now()))) continue
        payments += 1
        value += payment.value
        missing -= payment.value
      }
    }
    if (missing > 0n) unexplained.push({ account: account.id, address, missing })
    tools.onProgress(index + 1, owed.length)
  }
  return { payments, value, unexplained }
}

async function findLost(tools: RecoverTools, account: OwedAccount, missing: bigint): Promise<readonly LostPayment[]> {
  const { database } = tools
  const voided = await findVoidedSinceFreeze(database, account.partition, account.id)
  const found = await ask(
    tools,
    account,
    voided.map(({ nonce }) => nonce),
  )
  const sum = () => found.reduce((total, payment) => total + payment.value, 0n)
  let next = await readNonceNext(database, account.partition, account.id)
  for (let gap = 0; sum() < missing && gap < gapMax; ) {
    const nonces = Array.from({ length: atOnceMax }, (_, offset) => next + BigInt(offset))
    const more = await ask(tools, account, nonces)
    found.push(...more)
    gap = more.length > 0 ? 0 : gap + atOnceMax
    next += BigInt(atOnceMax)
  }
  return found
}

async function ask(
  { rail, terms }: RecoverTools,
  account: OwedAccount,
  nonces: readonly bigint[],
): Promise<LostPayment[]> {
  const transfers = await Promise.all(
    nonces.map((nonce) =>
      rail.findTransfer(account.address as Address, nonceOf('authorization', account.id, terms.epoch, nonce)),
    ),
  )
  return transfers.flatMap((transfer, index) => {
    if (transfer === undefined || transfer.state === 'failed' || transfer.to !== terms.seller) return []
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
