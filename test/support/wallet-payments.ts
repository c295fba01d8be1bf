import { randomBytes } from 'node:crypto'
import type { Database } from '../../src/db/database.ts'
import type { HoldDecision } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import { createRequestId } from '../../src/ledger/request-id.ts'
import type { TransferState } from '../../src/ledger/states.ts'
import { advanceEach, findTransfersAtGateway } from '../../src/ledger/transfers.ts'
import { findWallet, registerWallet, type X402Wallet } from '../../src/ledger/wallet-accounts.ts'
import { acceptedPayment, claimPayment, type PaymentClaim, type X402Payment } from '../../src/ledger/x402-payments.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { partitions, testModel } from './ledger.ts'

/** A wallet that was never here. */
export function newWallet(database: Database): Promise<X402Wallet> {
  return findWallet(database, `0x${randomBytes(20).toString('hex')}`, partitions)
}

export function signedPayment(wallet: X402Wallet, value: bigint): X402Payment {
  return {
    wallet,
    nonce: randomBytes(32),
    value,
    validAfter: 0,
    validBefore: Math.floor(Date.now() / 1000) + 8 * 86_400,
    signature: randomBytes(65),
    requestId: createRequestId(wallet.partition, Date.now()),
  }
}

/** What the service does with a payment that the gateway accepts. */
export async function payFor(
  database: Database,
  holds: Holds,
  payment: X402Payment,
  quote: bigint,
): Promise<HoldDecision | PaymentClaim> {
  const claim = await claimPayment(database, payment)
  if (claim !== 'claimed') return claim
  return placePaid(database, holds, payment, quote)
}

export async function placePaid(database: Database, holds: Holds, payment: X402Payment, quote: bigint) {
  const { wallet, requestId, nonce } = payment
  await registerWallet(database, wallet)
  return holds.placePaid({
    requestId,
    payer: wallet,
    quote: fromAtomic(quote),
    model: testModel.id,
    stream: false,
    maxTokens: 100,
    payment: acceptedPayment(payment, `transfer-${nonce.toString('hex')}`),
  })
}

/** The gateway says what became of a payment. */
export async function tellPayment(database: Database, { nonce }: X402Payment, state: TransferState): Promise<number> {
  const gatewayId = `transfer-${nonce.toString('hex')}`
  const [transfer] = await findTransfersAtGateway(database, 'x402', [gatewayId])
  if (transfer === undefined) return 0
  const transactionHash = `0x${'ab'.repeat(32)}`
  return advanceEach(database, [{ transfer, state, gatewayId, transactionHash }])
}
