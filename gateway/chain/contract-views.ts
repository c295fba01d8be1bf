import {
  type Address,
  createPublicClient,
  custom,
  decodeFunctionResult,
  encodeFunctionData,
  erc20Abi,
  type Hash,
} from 'viem'
import { settlementGatewayAbi as abi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { type ChainNode, ChainNodeError } from '../../src/chain/node.ts'
import type { GatewayTerms } from '../terms.ts'

/** The number of the contract's last batch. */
export async function viewLastBatchId(node: ChainNode, { wallet }: GatewayTerms): Promise<bigint> {
  const functionName = 'lastBatchId'
  const answer = await node.call(wallet, encodeFunctionData({ abi, functionName }))
  return decodeOrThrow(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** A depositor's balance in the contract. */
export type ContractBalance = { readonly available: bigint; readonly withdrawing: bigint }

/** The balances of these depositors at a block, in order: in one call, or one by one if a node refuses that call. */
export async function viewBalances(
  node: ChainNode,
  terms: GatewayTerms,
  depositors: readonly Address[],
  block: bigint,
): Promise<readonly ContractBalance[]> {
  if (depositors.length === 0) return []
  return viewTogether(node, terms, depositors, block).catch(async () => {
    const balances: ContractBalance[] = []
    for (const depositor of depositors) {
      const available = await view('availableBalance', depositor)
      const withdrawing = await view('withdrawingBalance', depositor)
      balances.push({ available, withdrawing })
    }
    return balances
  })

  async function view(functionName: BalanceView, depositor: Address): Promise<bigint> {
    const data = encodeFunctionData({ abi, functionName, args: [terms.usdc, depositor] })
    const answer = await node.call(terms.wallet, data, block)
    return decodeOrThrow(() => decodeFunctionResult({ abi, functionName, data: answer }))
  }
}

async function viewTogether(
  node: ChainNode,
  { wallet, usdc }: GatewayTerms,
  depositors: readonly Address[],
  blockNumber: bigint,
): Promise<readonly ContractBalance[]> {
  const request = ({ method, params = [] }: RpcCall) => node.request(method, params)
  const client = createPublicClient({ transport: custom({ request }, { retryCount: 0 }) })
  const view = (functionName: BalanceView) => (depositor: Address) =>
    ({ address: wallet, abi, functionName, args: [usdc, depositor] }) as const
  const contracts = [...depositors.map(view('availableBalance')), ...depositors.map(view('withdrawingBalance'))]
  // Needs no contract on the chain: the aggregating code is sent with the call.
  const gathering = { allowFailure: false, deployless: true, batchSize: 0 } as const
  const answers = await client.multicall({ ...gathering, blockNumber, contracts })
  return depositors.map((_, index) => ({
    available: answers[index]!,
    withdrawing: answers[depositors.length + index]!,
  }))
}

type RpcCall = { readonly method: string; readonly params?: readonly unknown[] }
type BalanceView = 'availableBalance' | 'withdrawingBalance'

/** Whether the contract has paid that intent, at a block. */
export async function viewIsOrderPaid(
  node: ChainNode,
  { wallet }: GatewayTerms,
  specHash: Hash,
  block: bigint,
): Promise<boolean> {
  const functionName = 'isTransferSpecUsed'
  const answer = await node.call(wallet, encodeFunctionData({ abi, functionName, args: [specHash] }), block)
  return decodeOrThrow(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** All USDC that the contract holds, at a block. */
export async function viewHoldings(node: ChainNode, { wallet, usdc }: GatewayTerms, block: bigint): Promise<bigint> {
  const functionName = 'balanceOf'
  const answer = await node.call(usdc, encodeFunctionData({ abi: erc20Abi, functionName, args: [wallet] }), block)
  return decodeOrThrow(() => decodeFunctionResult({ abi: erc20Abi, functionName, data: answer }))
}

function decodeOrThrow<Value>(decode: () => Value): Value {
  try {
    return decode()
  } catch (error) {
    throw new ChainNodeError('the contract’s answer could not be decoded', error)
  }
}
