import { setTimeout as sleep } from 'node:timers/promises'
import {
  decodeEventLog,
  encodeFunctionData,
  type Hash,
  type Hex,
  pad,
  parseAbi,
  slice,
  toEventSelector,
  zeroAddress,
} from 'viem'
import type { ContractCall } from '../chain/lands-once.ts'
import { ChainNode, type LogTopics, type RawLog } from '../chain/node.ts'
import { rpcHostsOf } from '../chain/nodes.ts'
import { readEach } from '../chain/read-each.ts'
import { reasonOf, UnusableSettingError } from '../errors.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'
import type { TransferMessage } from '../signer/typed-data.ts'

/** Where its log is. */
type ChainPlace = { readonly block: bigint; readonly logIndex: number; readonly transactionHash: Hash }

export type ChainArrival = ChainPlace & {
  readonly to: Address
  readonly sender: Address
  /** Without the dust below 0.000001 USDC of a native transfer, which stays at the address and counts in its balance. */
  readonly amount: bigint
}

export type ChainDeposit = ChainPlace & {
  readonly depositor: Address
  readonly amount: bigint
}

export type ChainWithdrawal = ChainPlace & {
  readonly depositor: Address
  /** Hash of the signed burn intent. */
  readonly specHash: Hex
  readonly recipient: Address
  readonly value: bigint
  /** Taken from the depositor's balance in addition to the amount. */
  readonly fee: bigint
}

export type ChainOptions = {
  /** One URL, or several separated by commas. */
  readonly rpcUrl: string
  readonly usdc: Address
  readonly gatewayWallet: Address
  /** Which log tells of USDC that arrives. */
  readonly depositLogs?: DepositLogs | undefined
  /** For a process that uses the chain in other ways too. */
  readonly node?: ChainNode | undefined
}

/**
 * `system`: Arc's system address logs every movement of USDC, also plain native transfers, with 18 decimals. `token`: on other chains the
 * token's contract logs all transfers. Never both: Arc logs a transfer by the token's contract twice.
 */
export type DepositLogs = 'system' | 'token'

export function chainOptions(endpoints: {
  readonly rpcUrl: string
  readonly depositLogs?: DepositLogs | undefined
  readonly terms: Pick<SigningTerms, 'usdc' | 'gatewayWallet'>
}): ChainOptions {
  const { rpcUrl, depositLogs } = endpoints
  const { usdc, gatewayWallet } = endpoints.terms
  return { rpcUrl, depositLogs, usdc: usdc.address, gatewayWallet }
}

const systemAddress = '0xfffffffffffffffffffffffffffffffffffffffe' as Address
const weiPerAtomic = 10n ** 12n

/** Withdrawals: Circle's gateway emits `GatewayBurned`, ours emits `InstantWithdrawal`. */
const abi = parseAbi([
  'event Transfer(address indexed from, address indexed to, uint256 value)',
  'event Deposited(address indexed token, address indexed depositor, address indexed sender, uint256 value)',
  'event GatewayBurned(address indexed token, address indexed depositor, bytes32 indexed transferSpecHash, uint32 destinationDomain, bytes32 destinationRecipient, address signer, uint256 value, uint256 fee, uint256 fromAvailable, uint256 fromWithdrawing)',
  'event InstantWithdrawal(address indexed token, address indexed depositor, bytes32 indexed transferSpecHash, address recipient, uint256 value, uint256 fromAvailable, uint256 fromWithdrawing)',
  'function balanceOf(address account) view returns (uint256)',
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
  'function totalBalance(address token, address depositor) view returns (uint256)',
  'function depositWithAuthorization(address token, address from, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
])
const [transferTopic, depositedTopic, ...withdrawalTopics] = abi
  .filter((item) => item.type === 'event')
  .map((event) => toEventSelector(event))

/** Above this, the logs of all addresses are read and compared here: that is one call, instead of one for every group of addresses. */
const addressesInFilterMax = 300
const amountMax = 2n ** 63n - 1n

type Range = { readonly first: bigint; readonly last: bigint }

/** Read access to the chain. Transactions are sent by `TransactionSender`. */
export type Chain = Awaited<ReturnType<typeof openChain>>

export async function openChain(options: ChainOptions) {
  const { usdc, gatewayWallet, depositLogs = 'system', node = new ChainNode(options.rpcUrl) } = options
  const chainId = await node.chainId()
  const [emitter, weiPerUnit] =
    depositLogs === 'system' ? ([systemAddress, weiPerAtomic] as const) : ([usdc, 1n] as const)
  const balanceCall = encodeFunctionData({ abi, functionName: 'balanceOf', args: [zeroAddress] })
  const totalCall = encodeFunctionData({ abi, functionName: 'totalBalance', args: [usdc, zeroAddress] })
  const views = {
    usdc: { contract: usdc, call: slice(balanceCall, 0, -32) },
    gateway: { contract: gatewayWallet, call: slice(totalCall, 0, -32) },
  }

  const announced: Address[] = []
  const isAnnounced = new Set<Address>()
  let tell: (arrival: ChainArrival) => void = () => {}

  function announceArrivals(addresses: readonly Address[], onArrival: typeof tell): void {
    tell = onArrival
    const added = addresses.filter((address) => !isAnnounced.has(address))
    if (added.length === 0) return
    // The last group grows until it is full, so that there are few.
    const firstGroup = Math.floor(announced.length / addressesInFilterMax)
    announced.push(...added)
    for (const address of added) isAnnounced.add(address)
    for (let group = firstGroup; group * addressesInFilterMax < announced.length; group += 1) {
      const members = announced.slice(group * addressesInFilterMax, (group + 1) * addressesInFilterMax)
      const topics = [[transferTopic!], null, members.map((address) => pad(address))]
      node.watchLogs(group, emitter, topics, (log) => {
        if (log.topics[0] === transferTopic) for (const arrival of readArrival(log)) tell(arrival)
      })
    }
  }

  /** All these events name the address that they are about second. */
  async function readLogs(
    emitters: readonly Address[],
    events: readonly Hex[],
    addresses: readonly Address[],
    { first, last }: Range,
  ) {
    if (addresses.length === 0) return []
    const about: LogTopics =
      addresses.length > addressesInFilterMax ? [] : [null, addresses.map((address) => pad(address))]
    const wanted = new Set<string>(addresses)
    const logs = await node.logs(emitters, first, last, [events, ...about])
    return logs.filter(({ topics }) => events.includes(topics[0]!) && wanted.has(addressIn(topics[2])))
  }

  function readDeposit(log: RawLog): readonly ChainDeposit[] {
    const { args } = decodeEventLog({ abi, eventName: 'Deposited', topics: topicsOf(log), data: log.data })
    if (lower(args.token) !== usdc || args.value > amountMax) return []
    return [{ depositor: lower(args.depositor), amount: args.value, ...placeOf(log) }]
  }

  function readArrival(log: RawLog): readonly ChainArrival[] {
    const { args } = decodeEventLog({ abi, eventName: 'Transfer', topics: topicsOf(log), data: log.data })
    const amount = args.value / weiPerUnit
    // No such USDC exists.
    if (amount > amountMax) return []
    return [{ to: lower(args.to), sender: lower(args.from), amount, ...placeOf(log) }]
  }

  function readWithdrawal(log: RawLog): readonly ChainWithdrawal[] {
    const { args, eventName } = decodeEventLog({ abi, topics: topicsOf(log), data: log.data })
    if (eventName !== 'GatewayBurned' && eventName !== 'InstantWithdrawal') return []
    if (lower(args.token) !== usdc || args.value > amountMax) return []
    const recipient = 'recipient' in args ? args.recipient : `0x${args.destinationRecipient.slice(26)}`
    return [
      {
        depositor: lower(args.depositor),
        specHash: args.transferSpecHash,
        recipient: lower(recipient),
        value: args.value,
        fee: args.fromAvailable + args.fromWithdrawing - args.value,
        ...placeOf(log),
      },
    ]
  }

  return {
    chainId,
    /** The latest final block. */
    finalBlock: () => node.height(),
    /** The same for `moneyIn`, when the node's limits allow it next. */
    finalBlockOfLogs: () => node.heightForLogs(),
    /**
     * Passes on what reaches these addresses as soon as a node announces it, where one does; `moneyIn` finds the same later. Each call names
     * all addresses, and replaces `onArrival`.
     */
    announceArrivals,
    /**
     * USDC that reached these addresses from block `first` to block `last`, inclusive, and deposits into the gateway's contract for them:
     * one call for both.
     */
    async moneyIn(addresses: readonly Address[], first: bigint, last: bigint) {
      const events = [transferTopic!, depositedTopic!]
      const logs = await readLogs([emitter, gatewayWallet], events, addresses, { first, last })
      const of = (contract: Address, event: Hex) =>
        logs.filter(({ address, topics }) => address === contract && topics[0] === event)
      return {
        arrivals: of(emitter, transferTopic!).flatMap(readArrival),
        deposits: of(gatewayWallet, depositedTopic!).flatMap(readDeposit),
      }
    },
    /** Deposits into the gateway's contract for these depositors. */
    async deposits(depositors: readonly Address[], first: bigint, last: bigint) {
      const logs = await readLogs([gatewayWallet], [depositedTopic!], depositors, { first, last })
      return logs.flatMap(readDeposit)
    },
    /** Withdrawals from the gateway's contract of these depositors. */
    async withdrawals(depositors: readonly Address[], first: bigint, last: bigint) {
      const logs = await readLogs([gatewayWallet], withdrawalTopics, depositors, { first, last })
      return logs.flatMap(readWithdrawal)
    },
    async usdcBalance(address: Address) {
      const [balance] = await readEach(node, { ...views.usdc, addresses: [address], block: 'latest' })
      return balance!
    },
    /** Balances as of that block, in the order of the addresses. Fails when the node does not have the block yet. */
    usdcBalances: (addresses: readonly Address[], block: bigint) => readEach(node, { ...views.usdc, addresses, block }),
    /** Total balances in the gateway's contract, including amounts that pending payments will move. */
    gatewayBalances: (depositors: readonly Address[], block: bigint) =>
      readEach(node, { ...views.gateway, addresses: depositors, block }),
    /** Whether the token has executed the authorization with that nonce, in any transaction. */
    async isAuthorizationUsed(authorizer: Address, nonce: Hex) {
      const data = encodeFunctionData({ abi, functionName: 'authorizationState', args: [authorizer, nonce] })
      return BigInt(await node.call(usdc, data)) !== 0n
    },
    /** Wei of the native coin, which is USDC with 18 decimals. */
    gasBalance: (address: Address) => node.coinBalance(address),
    gasPrice: () => node.gasPrice(),
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
      const place = `${reasonOf(error, rpcUrl)} (${rpcHostsOf(rpcUrl)})`
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

function placeOf({ block, index, transactionHash }: RawLog) {
  return { block, logIndex: index, transactionHash }
}

function topicsOf({ topics }: RawLog): [Hex, ...Hex[]] {
  return [...topics] as [Hex, ...Hex[]]
}

function addressIn(topic: Hex | undefined): string {
  return topic === undefined ? '' : `0x${topic.slice(26)}`
}

function lower(address: string): Address {
  return address.toLowerCase() as Address
}
