import { type Hex, numberToHex } from 'viem'
import { type Chain, NotReadyError } from './chain.ts'
import { RpcError, rpcCodes } from './rpc-error.ts'

export type Method = (params: readonly unknown[]) => Promise<unknown>

/**
 * Read methods, passed through unchanged. Methods that could change the chain without the journal, and wallet methods, are not
 * listed.
 */
const plainReads = [
  'eth_accounts',
  'eth_blobBaseFee',
  'eth_coinbase',
  'eth_feeHistory',
  'eth_gasPrice',
  'eth_getBalance',
  'eth_getBlockByHash',
  'eth_getBlockTransactionCountByHash',
  'eth_getBlockTransactionCountByNumber',
  'eth_getCode',
  'eth_getFilterChanges',
  'eth_getProof',
  'eth_getStorageAt',
  'eth_getTransactionByBlockHashAndIndex',
  'eth_getTransactionByBlockNumberAndIndex',
  'eth_getTransactionByHash',
  'eth_getTransactionCount',
  'eth_maxPriorityFeePerGas',
  'eth_newBlockFilter',
  'eth_newPendingTransactionFilter',
  'eth_uninstallFilter',
  'web3_clientVersion',
  'web3_sha3',
] as const

/** All equivalent on Arc, where a block is final as soon as it exists. */
const headTags: readonly unknown[] = [undefined, null, 'latest', 'pending', 'safe', 'finalized']

/** The largest transaction that Arc's nodes accept. */
const rawBytesMax = 128 * 1024
/** Limits of Arc's public nodes for one query. */
const logBlocksMax = 9_999
const logsMax = 20_000
/** Arc's limit of a call, and the EVM's. */
const callGasMax = 30_000_000
const evmGasMax = 2 ** 24
/** Below the ten seconds after which clients time out. */
const replayWaitMsMax = 5_000
const replayWaitersMax = 1_000

/** All methods that clients may call. */
export function chainMethods(chain: Chain): ReadonlyMap<string, Method> {
  const whenReady = waitForReplay(chain)
  const read = (method: string): Method => whenReady((params) => chain.read(method, ...params))
  const present = (method: string): Method =>
    whenReady(([call, block, ...rest]) =>
      headTags.includes(block)
        ? chain.readPresent(method, limitGas(call), ...rest)
        : chain.read(method, limitGas(call), block, ...rest),
    )
  return new Map<string, Method>([
    ...plainReads.map((method) => [method, read(method)] as const),
    // These need no block, so they are answered during the replay.
    ['eth_chainId', async () => `0x${chain.chainId.toString(16)}`],
    ['net_version', async () => String(chain.chainId)],
    ['net_listening', async () => true],
    ['eth_syncing', async () => syncing(chain)],
    ['eth_blockNumber', whenReady(async () => ((await chain.readHeadBlock()) as { number: Hex }).number)],
    ['eth_getBlockByNumber', whenReady((params) => getBlockByNumber(chain, params))],
    ['eth_call', present('eth_call')],
    ['eth_estimateGas', present('eth_estimateGas')],
    ['eth_getLogs', whenReady((params) => getLogs(chain, params))],
    ['eth_getTransactionReceipt', whenReady((params) => chain.readReceipt(...params))],
    ['eth_sendRawTransaction', whenReady(async (params) => chain.sendRawTransaction(parseRaw(params)))],
  ])
}

/** Lets a request wait for the end of the replay, within limits: most replays are shorter than client timeouts. */
function waitForReplay(chain: Chain): (method: Method) => Method {
  let waiters = 0
  return (method) => async (params) => {
    if (chain.progress().state === 'replaying') {
      if (waiters >= replayWaitersMax) throw new NotReadyError(chain.progress())
      waiters += 1
      await withinReplayWait(chain.ready).finally(() => {
        waiters -= 1
      })
    }
    return method(params)
  }
}

/** Resolves when the replay ends, successfully or not, or after the wait. The method then reports the state. */
async function withinReplayWait(ready: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, replayWaitMsMax)
  })
  await Promise.race([ready.catch(() => {}), timeout])
  clearTimeout(timer)
}

/** The answer of a node that is still syncing. The number of blocks is unknown until the end of the journal. */
function syncing(chain: Chain): unknown {
  const { state, blockNumber, journalBytesRead, journalBytes } = chain.progress()
  if (state === 'ready') return false
  const highest = journalBytesRead === 0 ? blockNumber : Math.ceil((blockNumber * journalBytes) / journalBytesRead)
  return {
    startingBlock: '0x0',
    currentBlock: `0x${blockNumber.toString(16)}`,
    highestBlock: `0x${Math.max(highest, blockNumber).toString(16)}`,
  }
}

/** `pending` is passed to the EVM: there it is the next block. */
async function getBlockByNumber(chain: Chain, params: readonly unknown[]): Promise<unknown> {
  const [tag, isWhole] = params
  const isHead = params.length === 2 && (tag === 'latest' || tag === 'safe' || tag === 'finalized')
  return isHead && isWhole === false ? chain.readHeadBlock() : chain.read('eth_getBlockByNumber', ...params)
}

async function getLogs(chain: Chain, params: readonly unknown[]): Promise<unknown> {
  const { fromBlock, toBlock } = (params[0] ?? {}) as Readonly<Record<string, unknown>>
  const from = blockNumberOf(fromBlock, chain.blockNumber)
  const to = blockNumberOf(toBlock, chain.blockNumber)
  // The EVM visits each block of the range, even those that do not exist yet: a large range would keep it busy for hours.
  if (to - from + 1 > logBlocksMax) {
    throw new RpcError(rpcCodes.rangeTooLarge, `exceeds max block range: ${to - from + 1} of ${logBlocksMax} blocks`)
  }
  const logs = await chain.readLogs({ from, to }, params)
  if (logs.length > logsMax) {
    throw new RpcError(rpcCodes.limitExceeded, `query exceeds max results ${logsMax}: ${logs.length}`)
  }
  return logs
}

/** Tags other than `earliest` mean the head. */
function blockNumberOf(tag: unknown, head: number): number {
  return tag === 'earliest' ? 0 : quantityOf(tag, head)
}

/** Invalid values are passed to the EVM. */
function quantityOf(value: unknown, otherwise: number): number {
  return typeof value === 'string' && /^0x[0-9a-f]+$/i.test(value) ? Number(value) : otherwise
}

function limitGas(call: unknown): unknown {
  const gas = quantityOf((call as { readonly gas?: unknown } | null | undefined)?.gas, 0)
  if (gas > callGasMax) throw new RpcError(rpcCodes.rejected, `gas limit too high: ${gas} of ${callGasMax}`)
  return gas > evmGasMax ? { ...(call as object), gas: numberToHex(evmGasMax) } : call
}

function parseRaw(params: readonly unknown[]): Hex {
  const [raw] = params
  if (params.length !== 1 || typeof raw !== 'string' || !/^0x(?:[0-9a-f]{2})+$/i.test(raw)) {
    throw new RpcError(
      rpcCodes.invalidParams,
      'eth_sendRawTransaction takes one signed transaction as 0x-prefixed hex.',
    )
  }
  const bytes = raw.length / 2 - 1
  if (bytes > rawBytesMax) {
    throw new RpcError(rpcCodes.rejected, `oversized data: transaction size ${bytes}, limit ${rawBytesMax}`)
  }
  return raw as Hex
}
