import { type Address, decodeFunctionResult, encodeFunctionData, erc20Abi, type Hash, slice, zeroAddress } from 'viem'
import { settlementGatewayAbi as abi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { type ChainNode, ChainNodeError } from '../../src/chain/node.ts'
import { readEach } from '../../src/chain/read-each.ts'
import type { GatewayTerms } from '../terms.ts'

/** The number of the contract's last batch. */
export async function viewLastBatchId(node: ChainNode, { wallet }: GatewayTerms): Promise<bigint> {
  const functionName = 'lastBatchId'
  const answer = await node.call(wallet, encodeFunctionData({ abi, functionName }))
  return decodeOrThrow(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** A depositor's balance in the contract. */
export type ContractBalance = { readonly available: bigint; readonly withdrawing: bigint }

/** The balances of these depositors at a block, in order. */
export async function viewBalances(
  node: ChainNode,
  { wallet, usdc }: GatewayTerms,
  addresses: readonly Address[],
  block: bigint,
): Promise<readonly ContractBalance[]> {
  const view = (functionName: 'availableBalance' | 'withdrawingBalance') => {
    const call = encodeFunctionData({ abi, functionName, args: [usdc, zeroAddress] })
    return readEach(node, { contract: wallet, call: slice(call, 0, -32), addresses, block })
  }
  const [available, withdrawing] = [await view('availableBalance'), await view('withdrawingBalance')]
  return available.map((value, index) => ({ available: value, withdrawing: withdrawing[index]! }))
}

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
