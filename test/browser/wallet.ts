import type { Page } from 'playwright-core'
import { createWalletClient, type Hex, http } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'

type Reply = { readonly result: unknown } | { readonly error: { readonly code: number; readonly message: string } }

/** A wallet in the browser, as an extension announces itself by EIP-6963. It knows no chain but Ethereum until it is told. */
export async function installWallet(page: Page, { refuses = false } = {}): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey())
  const wallet = new TestWallet(account, refuses)
  await page.exposeFunction('askTestWallet', (method: string, params: readonly never[]) =>
    wallet.answer(method, params),
  )
  await page.addInitScript(() => {
    const provider = {
      async request({ method, params = [] }: { method: string; params?: unknown[] }) {
        const { askTestWallet } = window as unknown as {
          askTestWallet(method: string, params: unknown[]): Promise<{ result?: unknown; error?: object }>
        }
        const { result, error } = await askTestWallet(method, params)
        if (error !== undefined) throw Object.assign(new Error(), error)
        return result
      },
    }
    const icon = 'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
    const info = { uuid: '350670db-19fa-4704-a166-e52e178b59d2', name: 'Test Wallet', icon, rdns: 'test.wallet' }
    const announce = () =>
      window.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail: Object.freeze({ info, provider }) }))
    window.addEventListener('eip6963:requestProvider', announce)
  })
  return account
}

/** Its owner either agrees to everything or declines all that is asked. */
class TestWallet {
  readonly #account: PrivateKeyAccount
  readonly #refuses: boolean
  readonly #nodes = new Map<string, string>([['0x1', 'http://127.0.0.1:1']])
  #chainId = '0x1'

  constructor(account: PrivateKeyAccount, refuses: boolean) {
    this.#account = account
    this.#refuses = refuses
  }

  async answer(method: string, params: readonly never[]): Promise<Reply> {
    const asksOwner = /^(personal_sign|eth_sendTransaction|wallet_)/.test(method)
    if (asksOwner && this.#refuses) return { error: { code: 4001, message: 'User rejected the request.' } }
    if (method === 'wallet_switchEthereumChain') return this.#switch(params[0]!)
    return { result: await this.#do(method, params) }
  }

  #switch({ chainId }: { chainId: string }): Reply {
    if (!this.#nodes.has(chainId)) return { error: { code: 4902, message: 'Unrecognized chain ID.' } }
    this.#chainId = chainId
    return { result: null }
  }

  async #do(method: string, params: readonly never[]): Promise<unknown> {
    const client = createWalletClient({ account: this.#account, transport: http(this.#nodes.get(this.#chainId)) })
    switch (method) {
      case 'eth_requestAccounts':
        return [this.#account.address]
      case 'personal_sign':
        return this.#account.signMessage({ message: { raw: params[0]! as Hex } })
      case 'eth_chainId':
        return this.#chainId
      case 'wallet_addEthereumChain': {
        const { chainId, rpcUrls } = params[0]! as { chainId: string; rpcUrls: string[] }
        this.#nodes.set(chainId, rpcUrls[0]!)
        return null
      }
      case 'eth_sendTransaction': {
        const { to, data } = params[0]! as { to: Hex; data: Hex }
        return client.sendTransaction({ to, data, chain: null })
      }
      default:
        return client.request({ method, params } as never)
    }
  }
}
