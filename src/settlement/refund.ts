import { findOpenRefunds, isRefundReady, type Refund, renewRefundWindow } from '../ledger/refunds.ts'
import { advanceWithdrawal, touchWithdrawal } from '../ledger/withdrawals.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import { SigningRefusedError, type TransferRequest } from '../signer/signing-request.ts'
import { isWindowUsable, windowOf } from '../signer/signing-terms.ts'
import { type PaymentTerms, paymentRequirementsOf, signedPayload } from './authorization.ts'
import type { Transfer } from './gateway-client.ts'
import { isSellerShort } from './solvency.ts'
import type { SubmitParts } from './submit.ts'

const refundsMax = 50

/**
 * Advances every open refund by one step. The seller pays the wallet with an authorization whose nonce is derived from the row. So every
 * attempt has the same nonce, and the gateway is asked what it has before the refund is submitted again. A refusal by the gateway
 * does not end a refund: the money is still owed. Returns how many are open.
 */
export async function advanceRefunds(parts: SubmitParts): Promise<number> {
  const open = await findOpenRefunds(parts.database, refundsMax)
  for (const refund of open) {
    try {
      await advance(parts, refund)
    } catch (error) {
      if (error instanceof SigningRefusedError) await refuse(parts, refund, error)
      else parts.onAlarm('a refund is waiting', { refund: refund.id, state: refund.state, err: error })
    }
    await touchWithdrawal(parts.database, refund)
  }
  return open.length
}

async function advance(parts: SubmitParts, refund: Refund): Promise<void> {
  const { database } = parts
  const found = refund.state === 'requested' ? undefined : await findAtGateway(parts, refund)
  if (found !== undefined) return follow(parts, refund, found)
  if (refund.state === 'requested') {
    if (!(await isRefundReady(database, refund))) return
    // A short seller pays nothing: the first refund must not be paid with money that is owed to others.
    if (await isSellerShort(database)) return
  }
  return submitRefund(parts, await withOpenWindow(parts, refund))
}

/** A gateway that lost its database and read the chain again has the transfer under another id. */
async function findAtGateway({ gatewayClient, terms }: SubmitParts, refund: Refund): Promise<Transfer | undefined> {
  const { gatewayId } = refund
  const byId = gatewayId === undefined ? undefined : await gatewayClient.transfer(gatewayId)
  return byId ?? gatewayClient.findTransfer(terms.seller, nonceOfRefund(refund))
}

async function submitRefund(parts: SubmitParts, refund: Refund): Promise<void> {
  const { database, signer, gatewayClient, terms, resource, failpoint, onAlarm } = parts
  const request = requestOf(refund, terms)
  const signature = await signer.sign(request)
  if (!(await advanceWithdrawal(database, refund, { state: 'sent' }))) return
  failpoint('before_refund')
  const accepted = paymentRequirementsOf(terms, request.message.to, request.message.value)
  const [answer] = await gatewayClient.settle([
    { paymentPayload: signedPayload(request.message, signature, accepted, resource), paymentRequirements: accepted },
  ])
  failpoint('after_refund')
  if (answer!.state === 'received') {
    await advanceWithdrawal(database, refund, { state: 'sent', gatewayId: answer!.id })
  } else onAlarm('the gateway did not take a refund', { refund: refund.id, reason: answer!.reason })
}

async function follow({ database, onAlarm }: SubmitParts, refund: Refund, found: Transfer): Promise<void> {
  if (found.to !== refund.recipient || found.amount !== refund.amount) {
    onAlarm('the nonce of a refund paid something else', { refund: refund.id, transfer: found.id })
  } else if (found.state === 'completed') {
    await advanceWithdrawal(database, refund, {
      state: 'confirmed',
      gatewayId: found.id,
      transactionHash: found.transactionHash,
    })
  } else if (found.state === 'failed') {
    onAlarm('a refund failed', { refund: refund.id, reason: found.reason })
    await advanceWithdrawal(database, refund, { state: 'failed', reason: found.reason ?? 'failed' })
  } else if (refund.gatewayId !== found.id) {
    await advanceWithdrawal(database, refund, { state: 'sent', gatewayId: found.id })
  }
}

function requestOf(refund: Refund, terms: PaymentTerms): TransferRequest<'refund'> {
  return {
    operation: 'refund',
    account: refund.accountId,
    epoch: refund.epoch,
    sequence: refund.sequence,
    domain: terms.domain,
    message: {
      from: terms.seller,
      to: refund.recipient as Address,
      value: refund.amount,
      ...windowOf(refund.authorizedAt),
      nonce: nonceOfRefund(refund),
    },
  }
}

function nonceOfRefund({ accountId, epoch, sequence }: Refund) {
  return nonceOf('refund', accountId, epoch, sequence)
}

/**
 * Renews a validity window that expires or begins in the future. An attempt with the earlier window may still arrive, or may have been
 * paid by a gateway that does not know it any more. The nonce is the same, so the contract pays only one of them.
 */
async function withOpenWindow({ database }: SubmitParts, refund: Refund): Promise<Refund> {
  if (isWindowUsable(refund.authorizedAt)) return refund
  return { ...refund, authorizedAt: await renewRefundWindow(database, refund) }
}

/** A refusal by the signer is final, except for its hourly limit: then the refund waits. */
async function refuse({ database, onAlarm }: SubmitParts, refund: Refund, error: SigningRefusedError): Promise<void> {
  const { reason, message } = error
  onAlarm('the signer refuses a refund', { refund: refund.id, reason, message })
  if (reason === 'hour_cap' || refund.state !== 'requested') return
  await advanceWithdrawal(database, refund, { state: 'failed', reason: `refused: ${reason}` })
}
