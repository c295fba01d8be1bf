import type { Session } from '../../api/shapes.ts'
import { askWallet, type Wallet, WalletError } from '../../wallet/wallet.ts'

// A deposit from a wallet of this browser: a plain ERC-20 transfer that the wallet shows, signs and sends.

export type Chain = NonNullable<Session['chain']>

/** The wallet does not know the chain (EIP-3326). */
const unknownChain = 4902

/** Brings the wallet to the chain of the service, and the chain to a wallet that does not know it. */
export async function enterChain(wallet: Wallet, chain: Chain): Promise<void> {
  if (await isOnChain(wallet, chain)) return
  try {
    await switchChain(wallet, chain)
  } catch (error) {
    if (!(error instanceof WalletError) || error.code !== unknownChain) throw error
    await addChain(wallet, chain)
    // Some wallets switch to it immediately, others only add it.
    if (!(await isOnChain(wallet, chain))) await switchChain(wallet, chain)
  }
  if (!(await isOnChain(wallet, chain)))
    throw new WalletError(`${wallet.name} is still on another chain, not ${chain.name}. Nothing was sent.`)
}

async function isOnChain(wallet: Wallet, chain: Chain): Promise<boolean> {
  return Number(await askWallet(wallet, 'eth_chainId')) === chain.id
}

function switchChain(wallet: Wallet, { id }: Chain): Promise<unknown> {
  return askWallet(wallet, 'wallet_switchEthereumChain', [{ chainId: hex(id) }])
}

function addChain(wallet: Wallet, { id, name, rpc_url, explorer_url }: Chain): Promise<unknown> {
  if (rpc_url === null) throw new WalletError(`${wallet.name} does not know ${name}. Add it there first.`)
  const chain = {
    chainId: hex(id),
    chainName: name,
    nativeCurrency: { name: 'USDC', symbol: 'USDC', decimals: 18 },
    rpcUrls: [rpc_url],
    ...(explorer_url !== null && { blockExplorerUrls: [explorer_url] }),
  }
  return askWallet(wallet, 'wallet_addEthereumChain', [chain])
}

/** How much USDC the wallet has, in atomic units. */
export async function readUsdc(wallet: Wallet, chain: Chain, owner: string): Promise<bigint> {
  const call = { to: chain.usdc_address, data: `0x70a08231${word(owner)}` }
  return BigInt((await askWallet(wallet, 'eth_call', [call, 'latest'])) as string)
}

export type Transfer = { readonly from: string; readonly to: string; readonly amount: bigint }

/** Has the wallet send it, and returns the transaction's hash. The chain is looked at last of all. */
export async function sendUsdc(wallet: Wallet, chain: Chain, { from, to, amount }: Transfer): Promise<string> {
  await enterChain(wallet, chain)
  const transaction = {
    from,
    to: chain.usdc_address,
    value: '0x0',
    data: transferData(to, amount),
    chainId: hex(chain.id),
  }
  return (await askWallet(wallet, 'eth_sendTransaction', [transaction])) as string
}

/** Undefined while it is in no block. */
export async function readOutcome(wallet: Wallet, hash: string): Promise<'done' | 'reverted' | undefined> {
  const receipt = (await askWallet(wallet, 'eth_getTransactionReceipt', [hash])) as { status: string } | null
  if (receipt === null) return undefined
  return Number(receipt.status) === 1 ? 'done' : 'reverted'
}

/** `transfer(address,uint256)` of ERC-20. */
export function transferData(to: string, amount: bigint): string {
  return `0xa9059cbb${word(to)}${word(hex(amount))}`
}

/** 32 bytes as the ABI wants them. */
function word(text: string): string {
  return text.slice(2).toLowerCase().padStart(64, '0')
}

function hex(number: number | bigint): string {
  return `0x${number.toString(16)}`
}
