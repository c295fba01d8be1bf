import { setTimeout as sleep } from 'node:timers/promises'
import { createPublicClient, custom, encodeFunctionData, type Hash, type Hex, parseAbi, parseAbiItem } from 'viem'
import { JsonRpcClient } from '../chain/json-rpc.ts'
import type { ContractCall } from '../chain/lands-once.ts'
import { reasonOf, UnusableSettingError } from '../errors.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'
import type { TransferMessage } from '../signer/typed-data.ts'

/** Read access to the chain. Transactions are sent by `TransactionSender`. */
export type Chain = {
  readonly chainId: number
  /** The latest final block. */
  finalBlock(): Promise<bigint>
  /** USDC transfers to these addresses from block `first` to block `last`, inclusive. */
  arrivals(addresses: readonly Address[], first: bigint, last: bigint): Promise<readonly ChainArrival[]>
  /** Deposits into the gateway's contract for these depositors. */
  deposits(depositors: readonly Address[], first: bigint, last: bigint): Promise<readonly ChainDeposit[]>
  /** Withdrawals from the gateway's contract of these depositors. */
  withdrawals(depositors: readonly Address[], first: bigint, last: bigint): Promise<readonly ChainWithdrawal[]>
  usdcBalance(address: Address): Promise<bigint>
  /** Balances as of that block, in the order of the addresses; one call per hundred. Fails when the node does not have the block yet. */
  usdcBalances(addresses: readonly Address[], block: bigint): Promise<readonly bigint[]>
  /** Total balances in the gateway's contract, including amounts that pending payments will move. */
  gatewayBalances(depositors: readonly Address[], block: bigint): Promise<readonly bigint[]>
  /** Whether the token has executed the authorization with that nonce, in any transaction. */
  isAuthorizationUsed(authorizer: Address, nonce: Hex): Promise<boolean>
  /** Wei of the native coin, which is USDC with 18 decimals. */
  gasBalance(address: Address): Promise<bigint>
  gasPrice(): Promise<bigint>
}

export type ChainArrival = {
  readonly to: Address
  readonly sender: Address
  readonly amount: bigint
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: Hash
}

export type ChainDeposit = {
  readonly depositor: Address
  readonly amount: bigint
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: Hash
}

export type ChainWithdrawal = {
  readonly depositor: Address
  /** Hash of the signed burn intent. */
  readonly specHash: Hex
  readonly recipient: Address
  readonly value: bigint
  /** Taken from the depositor's balance in addition to the amount. */
  readonly fee: bigint
  readonly block: bigint
  readonly logIndex: number
  readonly transactionHash: Hash
}

export type ChainOptions = {
  readonly rpcUrl: string
  readonly usdc: Address
  readonly gatewayWallet: Address
  readonly timeoutMs?: number
}

export function chainOptions(endpoints: {
  readonly rpcUrl: string
  readonly terms: Pick<SigningTerms, 'usdc' | 'gatewayWallet'>
}): ChainOptions {
  const { usdc, gatewayWallet } = endpoints.terms
  return { rpcUrl: endpoints.rpcUrl, usdc: usdc.address, gatewayWallet }
}

const transferEvent = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)')
const depositedEvent = parseAbiItem(
  'event Deposited(address indexed token, address indexed depositor, address indexed sender, uint256 value)',
)
/** Withdrawals: Circle's gateway emits this event, ours emits `InstantWithdrawal`. */
const burnedEvent = parseAbiItem(
  'event GatewayBurned(address indexed token, address indexed depositor, bytes32 indexed transferSpecHash, uint32 destinationDomain, bytes32 destinationRecipient, address signer, uint256 value, uint256 fee, uint256 fromAvailable, uint256 fromWithdrawing)',
)
const instantWithdrawalEvent = parseAbiItem(
  'event InstantWithdrawal(address indexed token, address indexed depositor, bytes32 indexed transferSpecHash, address recipient, uint256 value, uint256 fromAvailable, uint256 fromWithdrawing)',
)
const abi = parseAbi([
  'function balanceOf(address account) view returns (uint256)',
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
  'function totalBalance(address token, address depositor) view returns (uint256)',
  'function depositWithAuthorization(address token, address from, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
])

/** Addresses per log filter; nodes limit them. */
const addressesMax = 500
/** Balances per call. A deployless multicall sends them as init code, which is limited to 48 KiB. */
const balancesMax = 100
/** Deployless: needs no multicall contract on the chain. */
const multicallOptions = { allowFailure: false, deployless: true, batchSize: 0 } as const
const amountMax = 2n ** 63n - 1n

type RpcCall = { readonly method: string; readonly params?: readonly unknown[] }

export async function openChain({ rpcUrl, usdc, gatewayWallet, timeoutMs = 10_000 }: ChainOptions): Promise<Chain> {
  const rpc = new JsonRpcClient(rpcUrl, { timeoutMs })
  const request = ({ method, params = [] }: RpcCall) => rpc.request(method, params)
  const client = createPublicClient({ transport: custom({ request }, { retryCount: 2 }) })
  const chainId = await client.getChainId()

  const usdcBalanceOf = (account: Address) =>
    ({ address: usdc, abi, functionName: 'balanceOf', args: [account] }) as const
  const gatewayBalanceOf = (depositor: Address) =>
    ({ address: gatewayWallet, abi, functionName: 'totalBalance', args: [usdc, depositor] }) as const

  return {
    chainId,
    finalBlock: () => client.getBlockNumber({ cacheTime: 0 }),
    async arrivals(addresses, first, last) {
      const logs = await inGroups(addresses, addressesMax, (to) =>
        client.getLogs({
          address: usdc,
          event: transferEvent,
          args: { to },
          fromBlock: first,
          toBlock: last,
          strict: true,
        }),
      )
      return logs.filter(isAsked(usdc, first, last)).map(({ args, blockNumber, logIndex, transactionHash }) => ({
        to: lower(args.to),
        sender: lower(args.from),
        amount: args.value,
        block: blockNumber,
        logIndex,
        transactionHash,
      }))
    },
    async deposits(depositors, first, last) {
      const logs = await inGroups(depositors, addressesMax, (depositor) =>
        client.getLogs({
          address: gatewayWallet,
          event: depositedEvent,
          args: { token: usdc, depositor },
          fromBlock: first,
          toBlock: last,
          strict: true,
        }),
      )
      const asked = logs.filter(isAsked(gatewayWallet, first, last)).filter(({ args }) => lower(args.token) === usdc)
      return asked.map(({ args, blockNumber, logIndex, transactionHash }) => ({
        depositor: lower(args.depositor),
        amount: args.value,
        block: blockNumber,
        logIndex,
        transactionHash,
      }))
    },
    async withdrawals(depositors, first, last) {
      const range = { address: gatewayWallet, fromBlock: first, toBlock: last, strict: true } as const
      const logs = await inGroups(depositors, addressesMax, async (depositor) => {
        const args = { token: usdc, depositor }
        const burned = await client.getLogs({ ...range, event: burnedEvent, args })
        const instant = await client.getLogs({ ...range, event: instantWithdrawalEvent, args })
        return [
          ...burned.map((log) => ({ ...log, recipient: `0x${log.args.destinationRecipient.slice(26)}` })),
          ...instant.map((log) => ({ ...log, recipient: log.args.recipient })),
        ]
      })
      const asked = logs.filter(isAsked(gatewayWallet, first, last)).filter(({ args }) => lower(args.token) === usdc)
      return asked.map(({ args, recipient, blockNumber, logIndex, transactionHash }) => ({
        depositor: lower(args.depositor),
        specHash: args.transferSpecHash,
        recipient: lower(recipient),
        value: args.value,
        fee: args.fromAvailable + args.fromWithdrawing - args.value,
        block: blockNumber,
        logIndex,
        transactionHash,
      }))
    },
    usdcBalance: (address) => client.readContract(usdcBalanceOf(address)),
    usdcBalances: (addresses, blockNumber) =>
      readMany(
        addresses,
        (address) => client.readContract({ ...usdcBalanceOf(address), blockNumber }),
        (group) => client.multicall({ ...multicallOptions, blockNumber, contracts: group.map(usdcBalanceOf) }),
      ),
    gatewayBalances: (depositors, blockNumber) =>
      readMany(
        depositors,
        (depositor) => client.readContract({ ...gatewayBalanceOf(depositor), blockNumber }),
        (group) => client.multicall({ ...multicallOptions, blockNumber, contracts: group.map(gatewayBalanceOf) }),
      ),
    isAuthorizationUsed: (authorizer, nonce) =>
      client.readContract({ address: usdc, abi, functionName: 'authorizationState', args: [authorizer, nonce] }),
    gasBalance: (address) => client.getBalance({ address }),
    gasPrice: () => client.getGasPrice(),
  }
}

const catchingUpTriesMax = 60
const catchingUpPauseMs = 1_000

/**
 * Runs the first request to a node. Failures become a one-line error that does not contain the provider's key. A node that is still
 * syncing, as the sandbox's is right after its start, is retried for a minute.
 */
export async function refuseUnusableNode<Result>(rpcUrl: string, ask: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask()
    } catch (error) {
      if (isCatchingUp(error) && tries < catchingUpTriesMax) {
        await sleep(catchingUpPauseMs)
        continue
      }
      const place = `${reasonOf(error, rpcUrl)} (${new URL(rpcUrl).host})`
      throw new UnusableSettingError('CHAIN_RPC_URL', place, 'Check the URL and its key.', error)
    }
  }
}

/** JSON-RPC error "resource unavailable", possibly wrapped. */
function isCatchingUp(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause) {
    if ('code' in each && each.code === -32002) return true
  }
  return false
}

/** An authorization signed by the account, for the gateway's contract. */
export type SignedDeposit = { readonly message: TransferMessage; readonly signature: Hex }

const depositGasMax = 250_000n

/** The call that moves USDC from an account's address into the gateway, credited to that account. */
export function depositCall(
  usdc: Address,
  gatewayWallet: Address,
  { message, signature }: SignedDeposit,
): ContractCall {
  const { from, value, validAfter, validBefore, nonce } = message
  const data = encodeFunctionData({
    abi,
    functionName: 'depositWithAuthorization',
    args: [usdc, from, value, BigInt(validAfter), BigInt(validBefore), nonce, signature],
  })
  return { to: gatewayWallet, data, gas: depositGasMax }
}

async function inGroups<Result>(
  addresses: readonly Address[],
  groupMax: number,
  read: (group: Address[]) => Promise<readonly Result[]>,
): Promise<Result[]> {
  const results: Result[] = []
  for (let start = 0; start < addresses.length; start += groupMax) {
    results.push(...(await read(addresses.slice(start, start + groupMax))))
  }
  return results
}

/** Reads balances in groups, or one by one when the node refuses the group call. An unreachable node fails at the first. */
function readMany(
  addresses: readonly Address[],
  readOne: (address: Address) => Promise<bigint>,
  // Both views return a uint256 (see the ABI above).
  readGroup: (group: Address[]) => Promise<readonly unknown[]>,
): Promise<readonly bigint[]> {
  return inGroups(addresses, balancesMax, (group) =>
    (readGroup(group) as Promise<readonly bigint[]>).catch(async () => {
      const balances: bigint[] = []
      for (const address of group) balances.push(await readOne(address))
      return balances
    }),
  )
}

type Log = { readonly address: string; readonly blockNumber: bigint; readonly args: { readonly value: bigint } }

/**
 * Nodes may return more logs than requested: Arc emits a second log for every transfer, with other decimals, and some nodes ignore
 * filters. Amounts beyond a bigint column are dropped: no such USDC exists.
 */
function isAsked(emitter: Address, first: bigint, last: bigint): (log: Log) => boolean {
  return ({ address, blockNumber, args }) =>
    lower(address) === emitter && blockNumber >= first && blockNumber <= last && args.value <= amountMax
}

function lower(address: string): Address {
  return address.toLowerCase() as Address
}
