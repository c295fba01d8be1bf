import { readClock } from '../../db/clock.ts'
import type { Transfer } from '../../ledger/transfers.ts'
import type { Hex } from '../../receipts/hex.ts'
import type { SignatureRequest } from '../../signer/signer.ts'
import type { PayoutRequest, TransferRequest, WithdrawalRequest } from '../../signer/signing-request.ts'
import { isWindowUsable } from '../../signer/signing-terms.ts'
import type { TransferMessage } from '../../signer/typed-data.ts'
import { submittalOf } from '../authorization.ts'
import type { GatewayTransfer, GatewayTransferState, Submission } from '../gateway-client.ts'
import type { TransferParts } from './machine.ts'

/** What the gateway has under the id or the nonce of a transfer. */
export type Found = {
  readonly id: string
  readonly state: 'received' | 'batched' | 'confirmed' | 'failed'
  /** It pays the same amount to the same address. */
  readonly isSame: boolean
  readonly transactionHash: Hex | undefined
  readonly reason: string | undefined
  readonly fee: bigint | undefined
}

/** A way to the chain. */
export type Rail = {
  /** Undefined: the gateway does not have the transfer. */
  find(parts: TransferParts, transfer: Transfer, request: SignatureRequest): Promise<Found | undefined>
  /** Renews what has expired since the last attempt. */
  prepare(parts: TransferParts, transfer: Transfer): Promise<Transfer>
  submit(parts: TransferParts, request: SignatureRequest, signature: Hex): Promise<Submission>
}

/**
 * Withdrawal intents, which the gateway's contract pays out. They have no nonce to ask for: without the gateway's id the same intent is
 * submitted again, and gets the id of the first attempt.
 */
export const burn: Rail = {
  async find({ gatewayClient }, { gatewayId, feeMax }) {
    const found = gatewayId === undefined ? undefined : await gatewayClient.withdrawal(gatewayId)
    if (found === undefined) return undefined
    const state = found.state === 'pending' ? 'received' : found.state
    return { ...found, id: gatewayId!, state, isSame: true, fee: feeMax === 0n ? 0n : found.fee }
  },
  prepare: async (_, transfer) => transfer,
  submit: ({ gatewayClient }, { intent }: WithdrawalRequest | PayoutRequest, signature) =>
    gatewayClient.withdraw(intent, signature),
}

/** The ledger has no state between inclusion in a block and finality. */
export function stateOfTransfer(state: GatewayTransferState): Found['state'] {
  if (state === 'completed') return 'confirmed'
  return state === 'confirmed' ? 'batched' : state
}

/** Whether the gateway's transfer under the nonce of an authorization is that authorization. Anything else is never retried. */
export function isSame({ to, value }: Pick<TransferMessage, 'to' | 'value'>, found: GatewayTransfer): boolean {
  return found.to === to && found.amount === value
}

/** Authorizations (EIP-3009), which the gateway nets and puts into batches. */
export const settle: Rail = {
  async find({ gatewayClient }, { gatewayId }, { message }: TransferRequest) {
    const byId = gatewayId === undefined ? undefined : await gatewayClient.transfer(gatewayId)
    // A gateway that lost its database and read the chain again has the transfer under another id.
    const found = byId ?? (await gatewayClient.findTransfer(message.from, message.nonce))
    return found && { ...found, state: stateOfTransfer(found.state), isSame: isSame(message, found), fee: 0n }
  },
  /** An attempt with an earlier window may still arrive, or may have been paid. The nonce is the same, so the contract pays one of them. */
  async prepare({ database }, transfer) {
    if (isWindowUsable(transfer.authorizedAt)) return transfer
    return { ...transfer, authorizedAt: await readClock(database), signature: undefined }
  },
  async submit(parts, { message }: TransferRequest, signature) {
    return (await parts.gatewayClient.settle([submittalOf(message, signature, parts)]))[0]!
  },
}
