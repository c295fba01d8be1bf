import { type Address, encodeFunctionData, type Hash, type Hex, parseAbi } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { format, fromAtomic } from '../../src/money/usdc.ts'
import { baseFeeWei } from './evm.ts'
import { founderAccount } from './founding.ts'

/** The chain below the faucet. */
export type FaucetChain = {
  readonly chainId: number
  readonly usdc: Address
  request(method: string, ...params: readonly unknown[]): Promise<unknown>
  send(raw: Hex): Promise<Hash>
}

const tokenAbi = parseAbi(['function transfer(address to, uint256 value) returns (bool)'])
const tokenGas = 200_000n
const giftAtomicMax = 1_000_000_000_000n

/** Sends the founder's USDC by ordinary transactions. */
export class Faucet {
  readonly #chain: FaucetChain
  readonly #founder: PrivateKeyAccount = founderAccount()
  /** One gift at a time: its transactions have consecutive nonces. */
  #lastGift: Promise<unknown> = Promise.resolve()

  constructor(chain: FaucetChain) {
    this.#chain = chain
  }

  async give(address: Address, atomic: bigint): Promise<Hash> {
    if (atomic <= 0n || atomic > giftAtomicMax)
      throw new Error(
        `The faucet sent nothing: it gives ${format(fromAtomic(1n))} to ${format(fromAtomic(giftAtomicMax))} USDC per request, not ${format(fromAtomic(atomic))}.`,
      )
    const gift = this.#lastGift.then(() => this.#give(address, atomic))
    this.#lastGift = gift.catch(() => {})
    return gift
  }

  async #give(address: Address, atomic: bigint): Promise<Hash> {
    const { chainId, usdc } = this.#chain
    const data = encodeFunctionData({ abi: tokenAbi, functionName: 'transfer', args: [address, atomic] })
    const nonce = Number(await this.#chain.request('eth_getTransactionCount', this.#founder.address, 'latest'))
    const fees = { maxFeePerGas: baseFeeWei, maxPriorityFeePerGas: 0n }
    const call = { type: 'eip1559', chainId, nonce, ...fees, to: usdc, gas: tokenGas, data } as const
    const hash = await this.#chain.send(await this.#founder.signTransaction(call))
    const receipt = (await this.#chain.request('eth_getTransactionReceipt', hash)) as { status: Hex }
    if (receipt.status !== '0x1')
      throw new Error(`The faucet sent nothing: transaction ${hash} to ${address} reverted.`)
    return hash
  }
}
