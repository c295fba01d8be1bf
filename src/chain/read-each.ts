import { type Address, concat, encodeDeployData, type Hex, pad, toHex } from 'viem'
import { readEachAbi, readEachBytecode } from '../../contracts/generated/ReadEach.abi.ts'
import { failureOf } from './json-rpc.ts'
import { type ChainNode, ChainNodeError } from './node.ts'

export type EachRead = {
  readonly contract: Address
  /** Call data up to its last argument, the address. The view returns one number. */
  readonly call: Hex
  readonly addresses: readonly Address[]
  readonly block: bigint | 'latest'
}

/** Addresses per call: creation code has at most 48 KiB, and Arc's nodes spend at most 30 million gas on a call. */
const groupMax = 2_000
/** Of a group that is refused. Where a node refuses every group, few calls are wasted before single ones. */
const splitInto = 8
const valueBytes = 8
/** Comparisons give way to everything that a customer waits for. */
const slackMs = 10_000

/**
 * Reads a view for many addresses, in their order: in groups, and in smaller ones where a node refuses a group. Needs no contract on the
 * chain: the code that reads is sent with the call, as creation code.
 */
export function readEach(node: ChainNode, read: EachRead): Promise<readonly bigint[]> {
  return readParts(node, read, groupMax)
}

async function readParts(node: ChainNode, read: EachRead, size: number): Promise<readonly bigint[]> {
  const values: bigint[] = []
  for (let start = 0; start < read.addresses.length; start += size) {
    values.push(...(await readGroup(node, { ...read, addresses: read.addresses.slice(start, start + size) })))
  }
  return values
}

async function readGroup(node: ChainNode, read: EachRead): Promise<readonly bigint[]> {
  const { contract, call, addresses, block } = read
  if (addresses.length === 1) {
    const answer = await node.call(contract, concat([call, pad(addresses[0]!)]), block)
    if (answer.length !== 66) throw new ChainNodeError('eth_call: not a number')
    return [BigInt(answer)]
  }
  try {
    const data = encodeDeployData({
      abi: readEachAbi,
      bytecode: readEachBytecode,
      args: [contract, call, concat(addresses)],
    })
    return readValues(
      await node.request('eth_call', [{ data }, block === 'latest' ? block : toHex(block)], slackMs),
      addresses.length,
    )
  } catch (error) {
    if (!isRefusal(error)) throw error
    return readParts(node, read, Math.ceil(addresses.length / splitInto))
  }
}

/** Whether smaller groups may help: a node that is unreachable or limited fails for each of them too. */
function isRefusal(error: unknown): boolean {
  if (!(error instanceof ChainNodeError)) return false
  return error.cause === undefined || ['refused', 'large'].includes(failureOf(error.cause))
}

function readValues(answer: unknown, count: number): readonly bigint[] {
  const digits = valueBytes * 2
  if (typeof answer !== 'string' || !/^0x00[0-9a-f]*$/i.test(answer) || answer.length !== 4 + count * digits) {
    throw new ChainNodeError('eth_call: not the results that were asked for')
  }
  return Array.from({ length: count }, (_, index) =>
    BigInt(`0x${answer.slice(4 + index * digits, 4 + (index + 1) * digits)}`),
  )
}
