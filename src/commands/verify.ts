import { createReadStream } from 'node:fs'
import { open } from 'node:fs/promises'
import { createPublicClient, http, parseAbiItem, parseEventLogs, TransactionReceiptNotFoundError } from 'viem'
import { reasonOf } from '../errors.ts'
import { compareSnapshots, proofObject, readLiabilityProof, verifyLiabilityProof } from '../receipts/liability-proof.ts'
import { type BatchedPayment, needsTransfer, type SignedPayment, whyNoTransfer } from '../receipts/payment.ts'
import { InvalidReceiptError } from '../receipts/read-fields.ts'
import { lineLengthMax } from '../receipts/read-lines.ts'
import { type Receipt, readReceipt } from '../receipts/receipt.ts'
import type { ReceiptDomain } from '../receipts/typed-data.ts'
import { verifyBundle } from '../receipts/verify-bundle.ts'
import { type Check, verifyReceipt } from '../receipts/verify-receipt.ts'
import { type Address, parseAddress } from '../signer/address.ts'
import { receiptCrypto } from '../signer/receipt-crypto.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { createCounter } from './counter.ts'

const filesMax = 64

export const verifyCommand: Command = {
  usage: [
    [
      'penny verify FILE',
      'Check hashes, amounts, signatures and the proofs up to the batch, without network. Exit code 0 if FILE is valid, 1 if it is invalid or not signed yet',
    ],
    [
      'penny verify FILE…',
      'The same for proofs of liabilities. With several: also that no two of them are of different trees of one time',
    ],
    ['--issuer 0x…', 'Also check that this issuer signed it'],
    ['--rpc URL', 'Also check that the payments are on chain, at this node'],
  ],
  options: { rpc: { type: 'string' }, issuer: { type: 'string' } },
  wordsMax: filesMax,
  async run({ words: [file, ...others], options, output }) {
    if (file === undefined) throw new CommandError('Which file? penny verify receipt.json', 2)
    const trust = { issuer: readIssuer(options.issuer), onChain: readChain(options.rpc) }
    try {
      if (others.length > 0) return print(output, await checkProofs([file, ...others], trust))
      if (await isBundle(file)) return print(output, await checkBundle(file, trust))
      const document = await readDocument(file)
      const isProof = (document as { object?: unknown } | null)?.object === proofObject
      return print(output, isProof ? await checkProofs([file], trust) : await checkReceipt(document, trust))
    } catch (error) {
      if (error instanceof InvalidReceiptError) throw new CommandError(error.message)
      throw error
    }
  },
}

type Trust = { readonly issuer: Address | undefined; readonly onChain: PaymentOnChain | undefined }

type Verdict = {
  /** Whether the file is proven: no check failed, and no requested check is still pending. */
  readonly ok: boolean
  readonly checks: readonly Check[]
  readonly summary: string
  /** For programs. */
  readonly totals?: Readonly<Record<string, string>>
}

function print(output: Output, { ok, checks, summary, totals }: Verdict): number {
  if (output.json) {
    output.write(`${JSON.stringify({ ok, checks, ...(totals === undefined ? {} : { totals }) }, null, 2)}\n`)
  } else {
    for (const check of checks) {
      const mark = check.pending ? '…' : check.ok ? '✓' : '✗'
      output.write(`${mark} ${check.name.padEnd(10)} ${check.detail}\n`)
    }
    output.write(`\n${summary}\n`)
  }
  return ok ? 0 : 1
}

function readIssuer(text: string | boolean | undefined): Address | undefined {
  if (text === undefined) return undefined
  const issuer = parseAddress(String(text))
  if (issuer === undefined) throw new CommandError(`--issuer must be an address such as 0x1234…; got "${text}".`, 2)
  return issuer
}

function readChain(url: string | boolean | undefined): PaymentOnChain | undefined {
  if (url === undefined) return undefined
  if (!URL.canParse(String(url))) throw new CommandError(`--rpc must be the URL of a chain node; got "${url}".`, 2)
  return createPaymentOnChain(String(url))
}

const batchSettled = parseAbiItem(
  'event BatchSettled(uint64 indexed batchId, bytes32 indexed receiptRoot, uint256 authorizationCount, uint256 settledCount, uint256 settledValue)',
)
const paymentSettled = parseAbiItem('event PaymentSettled(address indexed payer, bytes32 nonce, uint256 value)')

/** Undefined when the gateway's contract settled the payment in the named batch and transaction; otherwise the problem. */
type PaymentOnChain = (payment: BatchedPayment, domain: ReceiptDomain) => Promise<string | undefined>

function createPaymentOnChain(rpcUrl: string): PaymentOnChain {
  const client = createPublicClient({ transport: http(rpcUrl) })
  let chainId: Promise<number> | undefined
  const refuse = (error: unknown): never => {
    throw new CommandError(`The chain node does not respond: ${reasonOf(error, rpcUrl)}.`)
  }
  return async (payment, domain) => {
    const { id, txHash, root } = payment.batch
    chainId ??= client.getChainId()
    const found = BigInt(await chainId.catch(refuse))
    if (found !== domain.chainId) return `The receipt is for chain ${domain.chainId}; the node is on chain ${found}.`
    const mined = await client.getTransactionReceipt({ hash: txHash }).catch((error: unknown) => {
      if (error instanceof TransactionReceiptNotFoundError) return undefined
      return refuse(error)
    })
    if (mined === undefined) return `Transaction ${txHash} is not on the chain.`
    const logs = mined.logs.filter(({ address }) => address.toLowerCase() === domain.gatewayWallet)
    const events = mined.status === 'success' ? parseEventLogs({ abi: [batchSettled, paymentSettled], logs }) : []
    const isBatchThere = events.some(
      ({ eventName, args }) =>
        eventName === 'BatchSettled' && args.batchId === id && args.receiptRoot.toLowerCase() === root,
    )
    if (!isBatchThere) return `Transaction ${txHash} does not settle batch ${id} with the root ${root}.`
    // The root also covers payments that the contract skipped, and whatever others who paid the seller have put under it.
    const isSettled = events.some(({ eventName, args }) => eventName === 'PaymentSettled' && isOf(payment, args))
    return isSettled || !needsTransfer(payment) ? undefined : `Batch ${id} does not settle payment ${payment.number}.`
  }
}

type SettledArguments = { readonly payer: string; readonly nonce: string; readonly value: bigint }

/**
 * Whether the event is of this payment. When the service pays back, the payer is the seller. A receipt does not name the seller, but the
 * nonce is unique to the account and the payment.
 */
function isOf({ payer, nonce, value }: SignedPayment, settled: SettledArguments): boolean {
  if (settled.nonce.toLowerCase() !== nonce) return false
  return value < 0n ? settled.value === -value : settled.value === value && settled.payer.toLowerCase() === payer
}

const receiptBytesMax = 1_048_576

/** The first line of a bundle identifies it; a receipt may span several lines. */
async function isBundle(file: string): Promise<boolean> {
  const start = await readStart(file, lineLengthMax)
  try {
    const header = JSON.parse(start.split('\n')[0]!) as { object?: unknown } | null
    return header?.object === 'receipts'
  } catch {
    return false
  }
}

async function readDocument(file: string): Promise<unknown> {
  const text = await readStart(file, receiptBytesMax + 1)
  if (text.length > receiptBytesMax) throw new CommandError(`${file} is too large to be a receipt.`)
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new CommandError(`${file} is not JSON: ${reasonOf(error)}.`)
  }
}

async function readStart(file: string, bytesMax: number): Promise<string> {
  try {
    await using handle = await open(file)
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(bytesMax), position: 0 })
    return buffer.toString('utf8', 0, bytesRead)
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${(error as Error).message}.`)
  }
}

async function checkReceipt(document: unknown, { issuer, onChain }: Trust): Promise<Verdict> {
  const checks: Check[] = [...(await verifyReceipt(document, receiptCrypto))]
  const receipt = readReceipt(document)
  if (issuer !== undefined) checks.push(checkIssuer(receipt.payment?.issuer, issuer))
  if (onChain !== undefined) checks.push(await checkChain(receipt, onChain))
  const isWrong = checks.some(({ ok }) => !ok)
  const isWaiting = receipt.payment === undefined || (onChain !== undefined && isOnItsWay(receipt.payment))
  return { ok: !isWrong && !isWaiting, checks, summary: summarize(isWrong, receipt, { issuer, onChain }) }
}

function summarize(isWrong: boolean, { payment }: Receipt, trust: Trust): string {
  if (isWrong) return 'The receipt is NOT valid.'
  if (payment === undefined) {
    return 'The receipt is not signed yet: no payment covers it. Try again later.'
  }
  const state = isOnItsWay(payment) ? 'The receipt is valid; its payment is not on chain yet.' : 'The receipt is valid.'
  return `${state}${notChecked(trust)}`
}

function isOnItsWay(payment: SignedPayment): boolean {
  return payment.batch === undefined && needsTransfer(payment)
}

/** A file names its own issuer. Only its reader knows whether that is the right one. */
function notChecked({ issuer, onChain }: Trust): string {
  const left = [
    ...(issuer === undefined ? ['the issuer (--issuer)'] : []),
    ...(onChain === undefined ? ['the chain (--rpc)'] : []),
  ]
  return left.length === 0 ? '' : `\nNot checked: ${left.join(' and ')}.`
}

function checkIssuer(found: string | undefined, trusted: Address): Check {
  if (found === undefined) return { name: 'issuer', ok: true, pending: true, detail: 'Not signed yet.' }
  const ok = found === trusted
  const detail = ok ? `${trusted} is the issuer you trust.` : `Issued by ${found}, not by ${trusted}.`
  return { name: 'issuer', ok, pending: false, detail }
}

async function checkChain({ domain, payment }: Receipt, onChain: PaymentOnChain): Promise<Check> {
  if (payment?.batch === undefined) {
    if (payment === undefined || needsTransfer(payment))
      return { name: 'chain', ok: true, pending: true, detail: 'Not on chain yet.' }
    const detail = `The payment ${whyNoTransfer(payment)}, so no transfer is needed.`
    return { name: 'chain', ok: true, pending: false, detail }
  }
  const { batch, number } = payment
  const problem = await onChain({ ...payment, batch }, domain)
  const detail = problem ?? `Transaction ${batch.txHash} settled payment ${number} in batch ${batch.id}.`
  return { name: 'chain', ok: problem === undefined, pending: false, detail }
}

/** Proofs of liabilities. With several, customers compare what the service has shown to each of them. */
async function checkProofs(files: readonly string[], { issuer, onChain }: Trust): Promise<Verdict> {
  if (onChain !== undefined)
    throw new CommandError('A snapshot of liabilities is signed and not on chain. Leave out --rpc.', 2)
  const documents = await Promise.all(files.map(readDocument))
  const proofs = documents.map(readLiabilityProof)
  const checks: Check[] = (
    await Promise.all(documents.map((document) => verifyLiabilityProof(document, receiptCrypto)))
  ).flat()
  if (issuer !== undefined) checks.push(...proofs.map(({ snapshot }) => checkIssuer(snapshot.issuer, issuer)))
  if (files.length > 1) checks.push(compareSnapshots(proofs, receiptCrypto.keccak256))
  const ok = checks.every((check) => check.ok)
  const valid = `${ok && files.length > 1 ? 'The proofs are' : 'The proof is'} valid. Compare the account and the amount with your own: only you know them.`
  return {
    ok,
    checks,
    summary: ok ? `${valid}${issuer === undefined ? '\nNot checked: the issuer (--issuer).' : ''}` : 'NOT valid.',
  }
}

async function checkBundle(file: string, { issuer, onChain }: Trust): Promise<Verdict> {
  const counter = createCounter('entries verified')
  const report = await verifyBundle(createReadStream(file), {
    crypto: receiptCrypto,
    onProgress: ({ entries }) => counter.show(entries),
    ...(onChain === undefined ? {} : { checkPayment: (payment, { domain }) => onChain(payment, domain) }),
  }).finally(counter.end)
  const { header, totals } = report
  const { entries, payments, unpaid } = totals
  const valid = `The bundle is valid: ${entries} entries of ${header.payer}, ${payments} payments, ${unpaid} entries unpaid.`
  const checks: Check[] = [...report.checks]
  if (issuer !== undefined) checks.push(checkIssuer(header.issuer, issuer))
  const ok = checks.every((check) => check.ok)
  return {
    ok,
    checks,
    summary: ok ? `${valid}${notChecked({ issuer, onChain })}` : 'The bundle is NOT valid.',
    totals: Object.fromEntries(Object.entries(totals).map(([name, value]) => [name, value.toString()])),
  }
}
