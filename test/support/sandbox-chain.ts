import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import {
  type Account,
  createPublicClient,
  createWalletClient,
  defineChain,
  encodeDeployData,
  encodeFunctionData,
  type Hash,
  type Hex,
  http,
  keccak256,
  type PublicClient,
  toHex,
} from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { arcSystemLogAbi, arcSystemLogBytecode } from '../../contracts/generated/ArcSystemLog.abi.ts'
import { devUsdcAbi, devUsdcBytecode } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi, settlementGatewayBytecode } from '../../contracts/generated/SettlementGateway.abi.ts'
import type { ChainContracts } from '../../sandbox/chain/founding.ts'
import { type ChainServer, type ChainServerOptions, startChainServer } from '../../sandbox/chain/server.ts'
import { atEnd } from './at-end.ts'

export const chainId = 5_042_002
export const usdc = '0x3600000000000000000000000000000000000000'
export const systemLog = '0xfffffffffffffffffffffffffffffffffffffffe'
export const withdrawalDelay = 5n
/** Atomic USDC for the gas of some transactions: it is paid from the balance that a test sends. */
export const gasAllowance = 100_000n

/** The same accounts in every run. */
export function account(name: string): PrivateKeyAccount {
  return privateKeyToAccount(keccak256(toHex(name)))
}

export const relayer = account('relayer')

export function contracts(): ChainContracts {
  const { address } = relayer
  const gatewayArguments = [usdc, withdrawalDelay, address, address, address] as const
  return {
    usdc: {
      address: usdc,
      creationCode: encodeDeployData({ abi: devUsdcAbi, bytecode: devUsdcBytecode, args: [address] }),
    },
    systemLog: {
      address: systemLog,
      creationCode: encodeDeployData({ abi: arcSystemLogAbi, bytecode: arcSystemLogBytecode, args: [usdc] }),
    },
    gateway: {
      creationCode: encodeDeployData({
        abi: settlementGatewayAbi,
        bytecode: settlementGatewayBytecode,
        args: gatewayArguments,
      }),
    },
  }
}

export async function temporaryFolder(test: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'penny-chain-'))
  atEnd(test, () => rm(folder, { recursive: true, force: true }))
  return folder
}

/** A chain that ends with the test, if not before. */
export async function startChain(test: TestContext, options: Partial<ChainServerOptions> = {}): Promise<ChainServer> {
  const server = await startChainServer({
    host: '127.0.0.1',
    port: 0,
    dataDir: options.dataDir ?? (await temporaryFolder(test)),
    chainId,
    contracts: contracts(),
    gasHolders: [relayer.address],
    onFailure: (error) => {
      throw error
    },
    ...options,
  })
  let closed: Promise<void> | undefined
  const close = () => (closed ??= server.close())
  atEnd(test, close)
  return { ...server, close }
}

export function publicClient(url: string): PublicClient {
  return createPublicClient({ chain: chainAt(url), transport: http(url, { retryCount: 0 }), pollingInterval: 20 })
}

export function walletClient(url: string, from: Account) {
  return createWalletClient({ account: from, chain: chainAt(url), transport: http(url, { retryCount: 0 }) })
}

/** A chain as a wallet knows it: the coin is USDC, with 18 decimals. */
function chainAt(url: string) {
  return defineChain({
    id: chainId,
    name: 'Sandbox',
    nativeCurrency: { name: 'USDC', symbol: 'USDC', decimals: 18 },
    rpcUrls: { default: { http: [url] } },
  })
}

/** A signed transfer of test USDC, as bytes. */
export async function signTransfer(from: PrivateKeyAccount, nonce: number, to: Hex, atomic: bigint): Promise<Hex> {
  const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [to, atomic] })
  return signCall(from, nonce, usdc, data)
}

export async function signCall(
  from: PrivateKeyAccount,
  nonce: number,
  to: Hex,
  data: Hex,
  gas = 200_000n,
): Promise<Hex> {
  const fees = { maxFeePerGas: 20_000_000_000n, maxPriorityFeePerGas: 0n }
  return from.signTransaction({ type: 'eip1559', chainId, nonce, to, data, gas, ...fees })
}

export async function usdcBalance(url: string, address: Hex): Promise<bigint> {
  return publicClient(url).readContract({ address: usdc, abi: devUsdcAbi, functionName: 'balanceOf', args: [address] })
}

type Block = {
  readonly hash: Hash
  readonly stateRoot: Hash
  readonly time: number
  readonly transactions: readonly Hash[]
}

/** Every block from the first on. */
export async function history(url: string): Promise<Block[]> {
  const last = Number(await publicClient(url).getBlockNumber())
  const numbers = Array.from({ length: last + 1 }, (_, number) => [toHex(number), false])
  const blocks = (await rpcAll(url, 'eth_getBlockByNumber', numbers)) as {
    [Name in keyof Block | 'timestamp']: never
  }[]
  return blocks.map(({ hash, stateRoot, timestamp, transactions }) => {
    return { hash, stateRoot, time: Number(timestamp), transactions }
  })
}

/** One request as it goes over the wire. */
export async function post(url: string, body: string): Promise<{ readonly status: number; readonly answer: unknown }> {
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  const text = await response.text()
  return { status: response.status, answer: text === '' ? undefined : JSON.parse(text) }
}

export async function rpc(url: string, method: string, ...params: readonly unknown[]) {
  const { answer } = await post(url, JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }))
  return answer as { readonly result?: unknown; readonly error?: { code: number; message: string; data?: string } }
}

/** The same question many times, in batches. Every one must be answered. */
export async function rpcAll(url: string, method: string, calls: readonly unknown[][]): Promise<unknown[]> {
  const results: unknown[] = []
  for (let start = 0; start < calls.length; start += 100) {
    const batch = calls.slice(start, start + 100).map((params, id) => ({ jsonrpc: '2.0', id, method, params }))
    const { answer } = await post(url, JSON.stringify(batch))
    for (const { result, error } of answer as { result?: unknown; error?: { message: string } }[]) {
      if (error !== undefined) throw new Error(error.message)
      results.push(result)
    }
  }
  return results
}
