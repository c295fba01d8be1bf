import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Address, Hash, Hex } from 'viem'
import { Chain, type ChainOptions, type ChainProgress } from './chain.ts'
import type { ChainContracts } from './founding.ts'
import type { ChainAddresses } from './journal.ts'
import { answerJsonRpc } from './json-rpc.ts'
import { chainMethods, type Method } from './methods.ts'
import { weiPerAtomic } from './one-balance.ts'
import { type Heads, PublicLimits } from './public-limits.ts'
import { RpcError, rpcCodes } from './rpc-error.ts'

export type ChainServerOptions = {
  readonly host: string
  /** 0 for any free port. */
  readonly port: number
  /** The folder of the chain's journal. */
  readonly dataDir: string
  readonly chainId: number
  readonly contracts: ChainContracts
  /** Addresses that pay gas for others, such as the relayer. They get USDC when the chain first sees them. */
  readonly gasHolders?: readonly Address[]
  /** Milliseconds since 1970; defaults to the system clock. */
  readonly clock?: () => number
  /** Answers within the limits of Arc's public RPC. */
  readonly isPublic?: boolean
  /** Called once when the chain cannot continue; only a restart helps. */
  readonly onFailure: (error: Error) => void
  /** For tests that crash between journal and EVM. */
  readonly onStep?: ChainOptions['onStep']
}

export type ChainServer = {
  readonly url: string
  readonly port: number
  readonly addresses: ChainAddresses
  /** False when the chain was created with other contracts than those of this start; it keeps its own. */
  readonly contractsAreCurrent: boolean
  /** Resolves when the journal is replayed. Until then, requests that need a block wait, and after a timeout get an error. */
  readonly ready: Promise<void>
  progress(): ChainProgress
  readonly admin: ChainAdmin
  /** Closes all connections. */
  close(): Promise<void>
}

/** Actions for this process only, once the chain is ready; none is reachable over HTTP. Amounts are atomic USDC. */
export type ChainAdmin = {
  /** Sends test USDC by a real transaction. */
  giveUsdc(address: Address, atomic: bigint): Promise<{ readonly transactionHash: Hash }>
  /**
   * Gives this much to an address that has less than half of it. Otherwise it does nothing and writes nothing to the journal.
   */
  keepGas(address: Address, atomic: bigint): Promise<void>
  mine(blocks: number): Promise<void>
  advanceTime(seconds: number): Promise<void>
}

const bodyBytesMax = 2 * 1024 * 1024
const connectionsMax = 1_000
const requestMsMax = 30_000
const keepAliveMs = 60_000

/**
 * Starts the sandbox chain: Arc's rules over an EVM in this process, with JSON-RPC in front of it and a journal behind it.
 *
 * Differences from Arc:
 * - Within one transaction, USDC that a contract receives by the token cannot leave it as native coin: coin follows the token only
 *   after the block. A transaction that spends the same money by both ways is reverted.
 * - When an inner call moves coin from or to a blocked address or the zero address, Arc reverts that call, the sandbox the whole
 *   transaction. `logsBloom` lacks the logs of native movements.
 * - Gas is Ethereum's; Arc adds 2,100 for each check of its blocklist.
 * - A block is mined for each transaction and only then, so block numbers stand still where Arc's grow by two a second (`mine`),
 *   and the last block may be old. Calls and estimates still use the present time.
 * - There is no mempool: a transaction with a future nonce is refused.
 */
export async function startChainServer(options: ChainServerOptions): Promise<ChainServer> {
  const clock = options.clock ?? Date.now
  const heads: Heads = []
  const chain = await Chain.open({
    dataDir: options.dataDir,
    chainId: options.chainId,
    contracts: options.contracts,
    gasHolders: options.gasHolders ?? [],
    clock,
    onFailure: options.onFailure,
    onStep: (step) => {
      if (options.isPublic && step === 'applied') heads.push({ blockNumber: chain.blockNumber, seenMs: clock() })
      options.onStep?.(step)
    },
  })
  const limits = options.isPublic ? new PublicLimits(clock, heads) : undefined
  const methods = limits === undefined ? chainMethods(chain) : limits.apply(chainMethods(chain))
  const server = createServer((request, response) => respond(request, response, methods, limits))
  server.requestTimeout = requestMsMax
  server.keepAliveTimeout = keepAliveMs
  server.maxConnections = connectionsMax
  await listen(server, options).catch(async (error: unknown) => {
    await chain.close()
    throw error
  })
  const { port } = server.address() as AddressInfo
  const { addresses, contractsAreCurrent, ready } = chain
  return {
    url: `http://${options.host}:${port}`,
    port,
    addresses,
    contractsAreCurrent,
    ready,
    progress: () => chain.progress(),
    admin: adminOf(chain),
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
      await chain.close()
    },
  }
}

function adminOf(chain: Chain): ChainAdmin {
  return {
    async giveUsdc(address, atomic) {
      await chain.ready
      return { transactionHash: await chain.giveUsdc(address, atomic) }
    },
    async keepGas(address, atomic) {
      await chain.ready
      const wei = BigInt((await chain.read('eth_getBalance', address, 'latest')) as Hex)
      if (2n * wei < atomic * weiPerAtomic) await chain.giveUsdc(address, atomic)
    },
    mine: (blocks) => chain.ready.then(() => chain.mine(blocks)),
    advanceTime: (seconds) => chain.ready.then(() => chain.advanceTime(seconds)),
  }
}

async function listen(server: Server, { host, port }: ChainServerOptions): Promise<void> {
  server.listen(port, host)
  await once(server, 'listening')
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  methods: ReadonlyMap<string, Method>,
  limits: PublicLimits | undefined,
): Promise<void> {
  // Any page may call it, like any public node: all data here is public.
  response.setHeader('access-control-allow-origin', '*')
  response.setHeader('access-control-allow-headers', 'content-type')
  if (request.method === 'OPTIONS') return send(response, 204)
  if (request.method !== 'POST') return send(response, 405, { allow: 'POST, OPTIONS' })
  try {
    const body = await readBody(request)
    if (body === undefined) return sendTooLarge(response)
    if (limits?.admits() === false) return send(response, 429, { 'retry-after': '1' })
    const answer = await answerJsonRpc(body, methods)
    send(response, answer === undefined ? 204 : 200, {}, answer)
  } catch {
    // The client disconnected while sending its request.
    response.destroy()
  }
}

/** Undefined when it is too long. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request) {
    length += chunk.length
    // The excess is read and dropped: to stop reading would close the connection before the response is sent.
    if (length <= bodyBytesMax) chunks.push(chunk)
  }
  return length > bodyBytesMax ? undefined : Buffer.concat(chunks).toString()
}

function sendTooLarge(response: ServerResponse): void {
  const { code, message } = new RpcError(
    rpcCodes.invalidRequest,
    `The request body is too large; the limit is ${bodyBytesMax} bytes.`,
  )
  send(response, 413, {}, JSON.stringify({ jsonrpc: '2.0', id: null, error: { code, message } }))
}

function send(response: ServerResponse, status: number, headers: Record<string, string> = {}, body?: string): void {
  response.writeHead(status, body === undefined ? headers : { ...headers, 'content-type': 'application/json' })
  response.end(body)
}
