import type { Database } from '../../db/database.ts'
import { advanceTransfer, findDueTransfers, type Transfer, touchTransfer } from '../../ledger/transfers.ts'
import type { SettlementFailpoint } from '../../process/failpoints.ts'
import type { Hex } from '../../receipts/hex.ts'
import type { Signer } from '../../signer/signer.ts'
import { SigningRefusedError } from '../../signer/signing-request.ts'
import type { SigningTerms } from '../../signer/signing-terms.ts'
import type { PaidResource, PaymentTerms } from '../authorization.ts'
import type { GatewayClient } from '../gateway-client.ts'
import { type KindRules, kinds, type SubmittedKind } from './kinds.ts'
import type { Found } from './rails.ts'

// Every transfer takes these steps; `is_transfer_step` has the same arrows:
//
//   requested ──► sent ──► received ──► batched ──► confirmed
//       │          │  ◄── lost ──┘          │
//       └──────────┴──────────► failed ◄────┘
//
//   requested   the money is out of the balance, and the gateway does not have the transfer
//   sent        the gateway may have it
//   received    it has it
//   batched     it is in a transaction
//   confirmed   final on chain
//   failed      final: it can never be paid, and the money is back where it came from
//
// Three rules keep each transfer from being paid twice or returned although it was paid, whatever dies in between:
//
//   Recorded before the call. A transfer is `sent` before the gateway hears of it. From then on it may be paid, whatever the call returns.
//   A transfer that has ended meanwhile, or that another process has submitted, does not become `sent`, and is not submitted.
//
//   A refusal is final only at the first attempt, when the transfer was `requested`. Later a refusal may mean that an earlier attempt,
//   whose answer was lost, has been paid. The same holds for a refusal by the signer: a later attempt repeats the stored signature.
//
//   After an unknown outcome ask, never repeat. The gateway is asked for the transfer under its id or its nonce first. What is submitted
//   again has the same nonce or salt, so that the contract pays one of the attempts at most.

export type TransferParts = {
  readonly database: Database
  readonly signer: Signer
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  readonly signingTerms: SigningTerms
  /** The paid resource, as x402 wants it named. */
  readonly resource: PaidResource
  readonly failpoint: SettlementFailpoint
  /** For problems that need an operator. */
  readonly onAlarm: (what: string, details: object) => void
}

/** Takes every transfer of that kind that is due one step further. A failing one does not delay the others. Returns how many were due. */
export async function advanceTransfers(parts: TransferParts, kind: SubmittedKind): Promise<number> {
  const { database, onAlarm } = parts
  const rules = kinds[kind]
  const due = await findDueTransfers(database, kind, rules.dueMax)
  for (const transfer of due) {
    try {
      await advance(parts, rules, transfer)
    } catch (error) {
      if (error instanceof SigningRefusedError) await takeSignerRefusal(parts, transfer, error)
      else onAlarm(`a ${kind} is waiting`, { [kind]: transfer.id, state: transfer.state, err: error })
    }
    await touchTransfer(database, transfer)
  }
  return due.length
}

async function advance(parts: TransferParts, rules: KindRules, transfer: Transfer): Promise<void> {
  const { kind, id, state, gatewayId } = transfer
  const found =
    state === 'requested' ? undefined : await rules.rail.find(parts, transfer, await rules.requestOf(parts, transfer))
  if (found !== undefined) return follow(parts, transfer, found)
  if (gatewayId !== undefined) parts.onAlarm(`the gateway has lost a ${kind}`, { [kind]: id, transfer: gatewayId })
  if (state === 'requested' && !(await rules.isReady(parts, transfer))) return
  return submit(parts, rules, await rules.rail.prepare(parts, transfer))
}

async function submit(parts: TransferParts, rules: KindRules, transfer: Transfer): Promise<void> {
  const { database, signer, failpoint, onAlarm } = parts
  const { kind, id, state, authorizedAt } = transfer
  const request = await rules.requestOf(parts, transfer)
  // A transfer that may have been submitted is submitted again unchanged, even if the signer would no longer sign it.
  const stored: Hex | undefined = state === 'requested' ? undefined : transfer.signature
  const signature = stored ?? (await signer.sign(request))
  if (!(await advanceTransfer(database, transfer, { state: 'sent', signature, authorizedAt }))) return
  failpoint(rules.failpoints[0])
  const answer = await rules.rail.submit(parts, request, signature)
  failpoint(rules.failpoints[1])
  const sent = { ...transfer, attempts: transfer.attempts + 1 }
  if (answer.state === 'received') {
    await advanceTransfer(database, sent, { state: 'received', gatewayId: answer.id })
    return
  }
  onAlarm(`the gateway did not accept a ${kind}`, { [kind]: id, reason: answer.reason })
  if (answer.state === 'failed' && state === 'requested' && rules.endsWhenRefused)
    await advanceTransfer(database, sent, { state: 'failed', reason: answer.reason })
}

async function follow({ database, onAlarm }: TransferParts, transfer: Transfer, found: Found): Promise<void> {
  const { kind, id, feeMax } = transfer
  if (!found.isSame) return onAlarm(`the nonce of a ${kind} paid something else`, { [kind]: id, transfer: found.id })
  if (found.state === 'failed') onAlarm(`a ${kind} failed`, { [kind]: id, reason: found.reason })
  const isFeeKnown = found.fee !== undefined && found.fee <= feeMax
  if (found.state === 'confirmed' && !isFeeKnown)
    onAlarm(`the fee of a ${kind} is not known`, { [kind]: id, reported: `${found.fee}` })
  if (found.state === transfer.state && found.id === transfer.gatewayId) return
  await advanceTransfer(database, transfer, {
    state: found.state,
    gatewayId: found.id,
    transactionHash: found.transactionHash,
    reason: found.state === 'failed' ? (found.reason ?? 'failed') : undefined,
    fee: isFeeKnown ? found.fee : undefined,
  })
}

/** Only the hourly limit of the signer passes: then the transfer waits. */
async function takeSignerRefusal(
  { database, onAlarm }: TransferParts,
  transfer: Transfer,
  { reason, message }: SigningRefusedError,
): Promise<void> {
  const { kind, id, state } = transfer
  onAlarm(`the signer refuses a ${kind}`, { [kind]: id, reason, message })
  if (reason === 'hour_cap' || state !== 'requested') return
  await advanceTransfer(database, transfer, { state: 'failed', reason: `refused: ${reason}` })
}
