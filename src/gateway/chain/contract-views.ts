import { type Address, decodeFunctionResult, encodeFunctionData, erc20Abi, type Hash, type Hex } from 'viem'
import { settlementGatewayAbi as abi } from '../../../contracts/generated/SettlementGateway.abi.ts'
import type { GatewayTerms } from '../terms.ts'
import { type ChainNode, ChainNodeError } from './node.ts'

/** The number of the contract's last batch. */
export async function viewLastBatchId(node: ChainNode, { wallet }: GatewayTerms): Promise<bigint> {
  const functionName = 'lastBatchId'
  const answer = await node.call(wallet, encodeFunctionData({ abi, functionName }))
  return sensible(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** One part of a depositor's balance as of a block. */
export async function viewBalance(
  node: ChainNode,
  { wallet, usdc }: GatewayTerms,
  functionName: 'availableBalance' | 'withdrawingBalance',
  depositor: Address,
  block: bigint,
): Promise<bigint> {
  const data: Hex = encodeFunctionData({ abi, functionName, args: [usdc, depositor] })
  const answer = await node.call(wallet, data, block)
  return sensible(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** Whether the contract has paid out by that order, as of a block. */
export async function viewIsOrderPaid(
  node: ChainNode,
  { wallet }: GatewayTerms,
  specHash: Hash,
  block: bigint,
): Promise<boolean> {
  const functionName = 'isTransferSpecUsed'
  const answer = await node.call(wallet, encodeFunctionData({ abi, functionName, args: [specHash] }), block)
  return sensible(() => decodeFunctionResult({ abi, functionName, data: answer }))
}

/** All USDC that the contract holds, as of a block. */
export async function viewHoldings(node: ChainNode, { wallet, usdc }: GatewayTerms, block: bigint): Promise<bigint> {
  const functionName = 'balanceOf'
  const answer = await node.call(usdc, encodeFunctionData({ abi: erc20Abi, functionName, args: [wallet] }), block)
  return sensible(() => decodeFunctionResult({ abi: erc20Abi, functionName, data: answer }))
}

function sensible<Value>(decode: () => Value): Value {
  try {
    return decode()
  } catch (error) {
    throw new ChainNodeError('an answer that is not the contract’s', error)
  }
}
