import { type Hex, recoverTypedDataAddress } from 'viem'
import {
  InvalidReceiptError,
  noHash,
  type ReceiptDocument,
  readReceipt,
  receiptHash,
  rootOf,
  typedReceipt,
} from './receipt.ts'

export type ReceiptCheck = {
  readonly name: 'hash' | 'signature' | 'amounts' | 'inclusion'
  readonly ok: boolean
  /** One line for people. */
  readonly detail: string
}

/**
 * Checks a receipt with nothing but itself: no network, no database. What it cannot know (whether the issuer is the one
 * you trust, whether the transaction is on the chain) is for the caller to compare.
 */
export async function verifyReceipt(document: ReceiptDocument): Promise<readonly ReceiptCheck[]> {
  if (document?.object !== 'receipt' || document.version !== 1) throw new InvalidReceiptError('its version is unknown')
  const receipt = readReceipt(document.receipt)
  if (!Number.isSafeInteger(document.domain?.chain_id) || !isHex(document.domain.gateway_wallet, 40)) {
    throw new InvalidReceiptError('it does not say of which chain and gateway it is')
  }
  const domain = { chainId: document.domain.chain_id, gatewayWallet: document.domain.gateway_wallet }
  const hash = receiptHash(receipt, domain)
  const signer = await recoverTypedDataAddress({
    ...typedReceipt(receipt, domain),
    signature: document.signature,
  }).catch(() => undefined)
  return [
    {
      name: 'hash',
      ok: hash === document.hash,
      detail:
        hash === document.hash ? `The fields hash to ${hash}.` : `The fields hash to ${hash}, not to ${document.hash}.`,
    },
    {
      name: 'signature',
      ok: isEqual(signer, document.issuer),
      detail: isEqual(signer, document.issuer)
        ? `Signed by ${document.issuer}.`
        : `Signed by ${signer ?? 'nobody'}, not by ${document.issuer}.`,
    },
    checkAmounts(receipt),
    checkInclusion(hash, document.batch, receipt),
  ]
}

function checkAmounts({ authorized, nonce, status, charged }: ReturnType<typeof readReceipt>): ReceiptCheck {
  const ok = authorized > 0n === (nonce !== noHash) && (status !== 'refused' || charged === 0n)
  const detail = ok
    ? `Charged ${charged}, authorized ${authorized} (atomic USDC).`
    : 'An authorization without a nonce.'
  return { name: 'amounts', ok, detail }
}

type Amounts = { readonly charged: bigint | string; readonly authorized: bigint | string }

/**
 * Why a request has nothing to settle on chain, in one line: credit paid for it, or it cost nothing, so it has no payment of its own
 * and is never in a batch. Undefined for a request whose payment has to reach the chain.
 */
export function nothingToSettle({ charged, authorized }: Amounts): string | undefined {
  if (BigInt(authorized) > 0n) return undefined
  return `${BigInt(charged) === 0n ? 'Nothing was charged' : 'Paid from credit'}: nothing to settle.`
}

function checkInclusion(
  hash: Hex,
  batch: ReceiptDocument['batch'],
  receipt: ReturnType<typeof readReceipt>,
): ReceiptCheck {
  if (batch === undefined)
    return { name: 'inclusion', ok: true, detail: nothingToSettle(receipt) ?? 'Not settled on chain yet.' }
  if (!Array.isArray(batch.proof) || ![batch.root, ...batch.proof].every((item) => isHex(item, 64))) {
    return { name: 'inclusion', ok: false, detail: 'The way up to the root is no list of hashes.' }
  }
  const root = rootOf(hash, batch.proof)
  return root === batch.root
    ? { name: 'inclusion', ok: true, detail: `Under the root ${root} of batch ${batch.id}.` }
    : { name: 'inclusion', ok: false, detail: `Leads to the root ${root}, but batch ${batch.id} says ${batch.root}.` }
}

function isEqual(left: string | undefined, right: unknown): boolean {
  return left !== undefined && left.toLowerCase() === String(right).toLowerCase()
}

function isHex(value: unknown, digits: number): boolean {
  return typeof value === 'string' && new RegExp(`^0x[0-9a-f]{${digits}}$`).test(value)
}
