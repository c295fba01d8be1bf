import { randomUUID } from 'node:crypto'
import type { Database } from '../db/database.ts'
import { StartRefusal } from '../errors.ts'
import type { SettlementFailpoint } from '../failpoints.ts'
import { format, type Usdc } from '../money/usdc.ts'
import type { Address } from '../signer/address.ts'
import { saltOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { burnIntent, type SigningTerms } from '../signer/signing-terms.ts'
import type { Rail } from './rail.ts'

export type PayoutTools = {
  readonly database: Database
  readonly signer: Signer
  readonly rail: Rail
  readonly signingTerms: SigningTerms
  readonly feeMax: bigint
  readonly failpoint: SettlementFailpoint
  readonly onAlarm: (what: string, details: object) => void
}

const maxBlockHeight = 2n ** 256n - 1n
const payoutsMax = 20

/** Orders the seller's revenue out of the gateway. What is owed back to accounts as credit stays there. */
export async function requestPayout(
  database: Database,
  amount: Usdc,
  recipient: Address,
  payable: Usdc,
): Promise<string> {
  if (amount > payable) throw new PayoutTooLargeError(amount, payable)
  const id = randomUUID()
  await database.query(`insert into payouts (id, amount, recipient, state) values ($1, $2, $3, 'requested')`, [
    id,
    amount,
    recipient,
  ])
  return id
}

/** What may be paid out: the seller's balance at the gateway, less all credit, less payouts under way. */
export async function payable(database: Database, sellerBalance: bigint): Promise<bigint> {
  const [row] = await database.query<{ owed: bigint; open: bigint }>(
    `select (select coalesce(sum(greatest(credit, 0)), 0) from accounts)::bigint
            + (select coalesce(sum(credit_back), 0) from withdrawals where state in ('requested', 'returning'))::bigint as owed,
            (select coalesce(sum(amount), 0) from payouts where state in ('requested', 'sent'))::bigint as open`,
  )
  const left = sellerBalance - row!.owed - row!.open
  return left > 0n ? left : 0n
}

export async function advancePayouts(tools: PayoutTools): Promise<number> {
  const { database, signer, rail, signingTerms, feeMax } = tools
  const open = await database.query<PayoutRow>(
    `select id, amount, recipient, state, rail_id from payouts where state in ('requested', 'sent') order by created_at limit $1`,
    [payoutsMax],
  )
  for (const { id, amount, recipient, rail_id } of open) {
    if (rail_id !== null) {
      const paid = await rail.withdrawal(rail_id)
      if (paid !== undefined && paid.state !== 'pending') {
        await move(database, id, paid.state, rail_id, paid.transactionHash, paid.reason)
      }
      continue
    }
    const intent = burnIntent(signingTerms, {
      depositor: signingTerms.seller,
      recipient: recipient as Address,
      value: amount,
      maxFee: feeMax,
      maxBlockHeight,
      salt: saltOf('payout', id),
    })
    const signature = await signer.signPayout({ operation: 'payout', payout: id, intent })
    await move(database, id, 'sent', null)
    tools.failpoint('before_payout')
    const answer = await rail.withdraw(intent, signature)
    if (answer.state === 'received') await move(database, id, 'sent', answer.id)
    else tools.onAlarm('the gateway did not take a payout', { payout: id, reason: answer.reason })
  }
  return open.length
}

export async function findPayout(
  database: Database,
  id: string,
): Promise<{ readonly state: string; readonly reason: string | null; readonly txHash: string | null } | undefined> {
  const [row] = await database.query<{ state: string; reason: string | null; tx_hash: string | null }>(
    `select state, reason, encode(tx_hash, 'hex') as tx_hash from payouts where id = $1`,
    [id],
  )
  return row && { state: row.state, reason: row.reason, txHash: row.tx_hash === null ? null : `0x${row.tx_hash}` }
}

async function move(
  database: Database,
  id: string,
  state: string,
  railId: string | null,
  transactionHash?: string,
  reason?: string,
): Promise<void> {
  await database.query(
    `update payouts set state = $2, rail_id = coalesce($3, rail_id), tx_hash = coalesce(decode($4, 'hex'), tx_hash), reason = $5,
            changed_at = clock_timestamp() where id = $1 and state not in ('confirmed', 'failed')`,
    [id, state, railId, transactionHash?.slice(2) ?? null, reason ?? null],
  )
}

type PayoutRow = {
  readonly id: string
  readonly amount: bigint
  readonly recipient: string
  readonly state: string
  readonly rail_id: string | null
}

export class PayoutTooLargeError extends StartRefusal {
  constructor(amount: Usdc, payable: Usdc) {
    super(
      `${format(amount)} USDC cannot be paid out: ${format(payable)} USDC can. The rest is owed to accounts as credit.`,
    )
  }
}
