import { type Address, encodeFunctionData, type Hash, type Hex } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { format, fromAtomic } from '../../src/money/usdc.ts'
import { type Chain, weiPerAtomic } from './chain.ts'
import { baseFeeWei } from './evm.ts'
import { faucetAbi, founderAccount, mintAtomicMax } from './founding.ts'

/** The transactions that were sent. */
export type Gift = { readonly transactionHash: Hash; readonly gasTransactionHash: Hash | undefined }

type Call = { readonly to: Address; readonly gas: bigint; readonly data?: Hex; readonly value?: bigint }

const tokenGas = 200_000n
const sendGas = 21_000n
/** One USDC of gas pays for some hundreds of transfers. */
const gasGiftWei = 1_000_000n * weiPerAtomic
const gasEnoughWei = gasGiftWei / 10n

/**
 * Sends test USDC by ordinary transactions. On Arc, USDC pays gas; here the coin is separate from the token, so an address without
 * coin also gets a little of it.
 */
export class Faucet {
  readonly #chain: Chain
  readonly #founder: PrivateKeyAccount = founderAccount()
  /** One gift at a time: its transactions have consecutive nonces. */
  #lastGift: Promise<unknown> = Promise.resolve()

  constructor(chain: Chain) {
    this.#chain = chain
  }

  async give(address: Address, atomic: bigint): Promise<Gift> {
    if (atomic <= 0n || atomic > mintAtomicMax)
      throw new FaucetError(
        `it gives ${format(fromAtomic(1n))} to ${format(fromAtomic(mintAtomicMax))} USDC per request, not ${format(fromAtomic(atomic))}`,
      )
    const gift = this.#lastGift.then(() => this.#give(address, atomic))
    this.#lastGift = gift.catch(() => {})
    return gift
  }

  async #give(address: Address, atomic: bigint): Promise<Gift> {
    if ((await this.#treasury()) < atomic) await this.#callToken('faucet', this.#founder.address, mintAtomicMax)
    // Gas first, so that a recipient that sees the USDC arrive can already send it on.
    const gasTransactionHash = await this.#giveGas(address)
    const transactionHash = await this.#callToken('transfer', address, atomic)
    return { transactionHash, gasTransactionHash }
  }

  async #giveGas(address: Address): Promise<Hash | undefined> {
    const balance = BigInt((await this.#chain.read('eth_getBalance', address, 'latest')) as Hex)
    const code = await this.#chain.read('eth_getCode', address, 'latest')
    if (balance >= gasEnoughWei || code !== '0x') return undefined
    return this.#send({ to: address, gas: sendGas, value: gasGiftWei })
  }

  async #treasury(): Promise<bigint> {
    const data = encodeFunctionData({ abi: faucetAbi, functionName: 'balanceOf', args: [this.#founder.address] })
    return BigInt((await this.#chain.read('eth_call', { to: this.#chain.addresses.usdc, data }, 'latest')) as Hex)
  }

  async #callToken(functionName: 'faucet' | 'transfer', to: Address, atomic: bigint): Promise<Hash> {
    const data = encodeFunctionData({ abi: faucetAbi, functionName, args: [to, atomic] })
    return this.#send({ to: this.#chain.addresses.usdc, gas: tokenGas, data })
  }

  async #send(call: Call): Promise<Hash> {
    const { address } = this.#founder
    const nonce = Number(await this.#chain.read('eth_getTransactionCount', address, 'latest'))
    const fees = { maxFeePerGas: baseFeeWei, maxPriorityFeePerGas: 0n }
    const transaction = { type: 'eip1559', chainId: this.#chain.chainId, nonce, ...fees, ...call } as const
    const hash = await this.#chain.sendRawTransaction(await this.#founder.signTransaction(transaction))
    const receipt = (await this.#chain.read('eth_getTransactionReceipt', hash)) as { status: Hex }
    if (receipt.status !== '0x1') throw new FaucetError(`transaction ${hash} to ${call.to} reverted`)
    return hash
  }
}

export class FaucetError extends Error {
  constructor(why: string) {
    super(`The faucet sent nothing: ${why}.`)
    this.name = 'FaucetError'
  }
}
