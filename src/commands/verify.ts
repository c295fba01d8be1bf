import { readFileSync } from 'node:fs'
import { createPublicClient, http, parseAbiItem, TransactionReceiptNotFoundError } from 'viem'
import { reasonOf } from '../errors.ts'
import type { ReceiptDocument } from '../settlement/receipt.ts'
import { InvalidReceiptError } from '../settlement/receipt.ts'
import { nothingToSettle, type ReceiptCheck, verifyReceipt } from '../settlement/verify-receipt.ts'
import { type Command, CommandError } from './command.ts'

export const verifyCommand: Command = {
  summary: 'check a receipt, offline',
  usage: `penny verify FILE                 the fields, the signature, the way up to the root of its batch; no network
      --rpc URL                       and whether that root stands on the chain
      --issuer 0x…                    and whether it was signed by the one you trust`,
  options: { rpc: { type: 'string' }, issuer: { type: 'string' } },
  wordsMax: 1,
  async run({ words: [file], options, output }) {
    if (file === undefined) throw new CommandError('Say which receipt: penny verify receipt.json', 2)
    const document = readDocument(file)
    const checks: Check[] = [...(await check(document))]
    if (typeof options.issuer === 'string') checks.push(checkIssuer(document, options.issuer))
    if (typeof options.rpc === 'string') checks.push(await checkChain(document, options.rpc))
    const ok = checks.every((item) => item.ok)
    const plain = checks.map(({ name, ok, detail }) => ({ name, ok, detail }))
    if (output.json) output.write(`${JSON.stringify({ ok, checks: plain }, null, 2)}\n`)
    else {
      for (const { ok: passed, name, detail } of checks)
        output.write(`${passed ? '✓' : '✗'} ${name.padEnd(10)} ${detail}\n`)
      output.write(`\n${summaryOf(checks)}\n`)
    }
    return ok ? 0 : 1
  },
}

type Check = {
  readonly name: string
  readonly ok: boolean
  readonly detail: string
  /** It may pass later. */
  readonly isPending?: boolean
}

function summaryOf(checks: readonly Check[]): string {
  const failed = checks.filter(({ ok }) => !ok)
  if (failed.length === 0) return 'The receipt is good.'
  if (failed.every(({ isPending }) => isPending))
    return 'The receipt is genuine, but not settled yet. Try again in a minute.'
  return 'The receipt is NOT good.'
}

function readDocument(file: string): ReceiptDocument {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as ReceiptDocument
  } catch (error) {
    throw new CommandError(`${file} cannot be read as a receipt: ${(error as Error).message}.`)
  }
}

async function check(document: ReceiptDocument): Promise<readonly ReceiptCheck[]> {
  try {
    return await verifyReceipt(document)
  } catch (error) {
    if (error instanceof InvalidReceiptError || error instanceof TypeError) {
      throw new CommandError(
        error instanceof InvalidReceiptError ? error.message : 'Invalid receipt: fields are missing.',
      )
    }
    throw error
  }
}

function checkIssuer({ issuer }: ReceiptDocument, trusted: string) {
  const ok = String(issuer).toLowerCase() === trusted.toLowerCase()
  return {
    name: 'issuer',
    ok,
    detail: ok ? `${issuer} is the one you trust.` : `Issued by ${issuer}, not by ${trusted}.`,
  }
}

const batchSettled = parseAbiItem(
  'event BatchSettled(uint64 indexed batchId, bytes32 indexed receiptRoot, uint256 authorizationCount, uint256 settledCount, uint256 settledValue)',
)

/** Whether the gateway's contract put that root on the chain, in that transaction. */
async function checkChain({ receipt, batch, domain }: ReceiptDocument, rpcUrl: string): Promise<Check> {
  if (batch === undefined) {
    const nothing = nothingToSettle(receipt)
    if (nothing !== undefined) return { name: 'chain', ok: true, detail: nothing }
    return { name: 'chain', ok: false, isPending: true, detail: 'Its payment is not on the chain yet.' }
  }
  const client = createPublicClient({ transport: http(rpcUrl) })
  const chainId = await client.getChainId().catch((error: unknown) => refuse(error, rpcUrl))
  if (chainId !== domain.chain_id) {
    return { name: 'chain', ok: false, detail: `It is of chain ${domain.chain_id}; this node is of ${chainId}.` }
  }
  const mined = await client.getTransactionReceipt({ hash: batch.tx_hash }).catch((error: unknown) => {
    if (error instanceof TransactionReceiptNotFoundError) return undefined
    return refuse(error, rpcUrl)
  })
  if (mined === undefined || !/^\d{1,19}$/.test(batch.id)) {
    return { name: 'chain', ok: false, detail: `The chain has no transaction ${batch.tx_hash} of batch ${batch.id}.` }
  }
  const { blockNumber } = mined
  const range = { fromBlock: blockNumber, toBlock: blockNumber }
  const args = { batchId: BigInt(batch.id), receiptRoot: batch.root }
  const logs = await client
    .getLogs({ ...range, address: domain.gateway_wallet, event: batchSettled, args })
    .catch((error: unknown) => refuse(error, rpcUrl))
  const ok = logs.some(({ transactionHash }) => transactionHash === batch.tx_hash)
  return {
    name: 'chain',
    ok,
    detail: ok ? `The root stands in block ${blockNumber}.` : `No such root stands in transaction ${batch.tx_hash}.`,
  }
}

function refuse(error: unknown, rpcUrl: string): never {
  throw new CommandError(`The chain cannot be asked: ${reasonOf(error, rpcUrl)}.`)
}
