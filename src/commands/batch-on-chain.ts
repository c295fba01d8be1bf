import { createPublicClient, http, parseAbiItem, parseEventLogs, TransactionReceiptNotFoundError } from 'viem'
import { reasonOf } from '../errors.ts'
import type { Batch } from '../receipts/payment.ts'
import type { ReceiptDomain } from '../receipts/typed-data.ts'
import { CommandError } from './command.ts'

const batchSettled = parseAbiItem(
  'event BatchSettled(uint64 indexed batchId, bytes32 indexed receiptRoot, uint256 authorizationCount, uint256 settledCount, uint256 settledValue)',
)

/** Undefined when the gateway's contract put the batch's root on the chain in the transaction it names; else what is wrong. */
export type BatchOnChain = (batch: Batch, domain: ReceiptDomain) => Promise<string | undefined>

export function createBatchOnChain(rpcUrl: string): BatchOnChain {
  const client = createPublicClient({ transport: http(rpcUrl) })
  let chainId: Promise<number> | undefined
  const refuse = (error: unknown): never => {
    throw new CommandError(`The chain node does not respond: ${reasonOf(error, rpcUrl)}.`)
  }
  return async ({ id, txHash, root }, domain) => {
    chainId ??= client.getChainId()
    const found = BigInt(await chainId.catch(refuse))
    if (found !== domain.chainId) return `The receipt is for chain ${domain.chainId}; the node is on chain ${found}.`
    const mined = await client.getTransactionReceipt({ hash: txHash }).catch((error: unknown) => {
      if (error instanceof TransactionReceiptNotFoundError) return undefined
      return refuse(error)
    })
    if (mined === undefined) return `Transaction ${txHash} is not on the chain.`
    const events = mined.status === 'success' ? parseEventLogs({ abi: [batchSettled], logs: mined.logs }) : []
    const isThere = events.some(
      ({ address, args }) =>
        address.toLowerCase() === domain.gatewayWallet &&
        args.batchId === id &&
        args.receiptRoot.toLowerCase() === root,
    )
    return isThere ? undefined : `Transaction ${txHash} does not settle batch ${id} with the root ${root}.`
  }
}
