import { useEffect, useState } from 'react'

// Wallets of this browser, found by EIP-6963: each announces itself, none is preferred, no third party is asked.

export type Wallet = {
  readonly id: string
  readonly name: string
  /** A data: address of a picture. */
  readonly icon: string
  readonly provider: Provider
}

type Provider = { request(call: { method: string; params?: readonly unknown[] }): Promise<unknown> }

type Announcement = CustomEvent<{
  readonly info: { readonly uuid: string; readonly name: string; readonly icon: string }
  readonly provider: Provider
}>

/** Reports every wallet that announces itself, for as long as the caller listens. */
function watchWallets(onWallet: (wallet: Wallet) => void): () => void {
  const hear = (event: Event) => {
    const { info, provider } = (event as Announcement).detail
    onWallet({ id: info.uuid, name: info.name, icon: info.icon, provider })
  }
  window.addEventListener('eip6963:announceProvider', hear)
  window.dispatchEvent(new Event('eip6963:requestProvider'))
  return () => window.removeEventListener('eip6963:announceProvider', hear)
}

export function useWallets(): readonly Wallet[] {
  const [wallets, setWallets] = useState<readonly Wallet[]>([])
  useEffect(
    () =>
      watchWallets((wallet) =>
        setWallets((known) => (known.some(({ id }) => id === wallet.id) ? known : [...known, wallet])),
      ),
    [],
  )
  return wallets
}

/** The address that the wallet's owner lets this page know. */
export async function connectWallet(wallet: Wallet): Promise<string> {
  const [address] = (await askWallet(wallet, 'eth_requestAccounts')) as readonly string[]
  if (address === undefined) throw new WalletError('The wallet shared no address. Unlock it and try again.')
  return address
}

/** The wallet's response. Throws an error with a message for the page when the wallet or its owner refuses. */
export async function askWallet(wallet: Wallet, method: string, params?: readonly unknown[]): Promise<unknown> {
  try {
    return await wallet.provider.request({ method, ...(params !== undefined && { params }) })
  } catch (error) {
    const { code, message } = error as { code?: number; message?: string }
    if (code === 4001)
      throw new WalletError(`You declined ${declinable[method] ?? 'the connection'}. Nothing was sent.`, code)
    throw new WalletError(`${wallet.name} returned an error: ${message ?? 'no message'}`, code)
  }
}

const declinable: Readonly<Record<string, string>> = {
  personal_sign: 'the signature',
  eth_sendTransaction: 'the transaction',
  wallet_addEthereumChain: 'adding the chain',
  wallet_switchEthereumChain: 'switching the chain',
}

/** A refusal by the wallet or its owner. Its message is shown unchanged. */
export class WalletError extends Error {
  /** As EIP-1193 numbers it, where the wallet did. */
  readonly code: number | undefined

  constructor(message: string, code?: number) {
    super(message)
    this.name = 'WalletError'
    this.code = code
  }
}
