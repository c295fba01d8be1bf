import { BatchEvmScheme } from '@circle-fin/x402-batching/client'
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from '@x402/core/http'
import { wrapFetchWithSIWx } from '@x402/extensions/sign-in-with-x'
import { wrapFetchWithPayment, x402Client } from '@x402/fetch'
import { createPublicClient, createWalletClient, defineChain, type Hex, http, parseAbi } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { parse } from '../../src/money/usdc.ts'
import { createGatewayClient } from '../../src/settlement/gateway-client.ts'
import type { Address } from '../../src/signer/address.ts'
import type { MoneyService } from './money-service.ts'
import { until } from './until.ts'

const abi = parseAbi([
  'function approve(address spender, uint256 value) returns (bool)',
  'function deposit(address token, uint256 value)',
])

/** An agent's wallet with USDC at the gateway, and public x402 clients that pay with it. Nothing in it knows this service. */
export async function openX402Wallet(
  { money, sandbox }: Pick<MoneyService, 'money' | 'sandbox'>,
  deposited: string,
  key: Hex = generatePrivateKey(),
) {
  const account = privateKeyToAccount(key)
  const address = account.address.toLowerCase() as Address
  const atomic = parse(deposited)
  const { terms, rpcUrl, gatewayUrl, gatewayToken } = money
  if (atomic > 0n) {
    await sandbox.faucet(account.address, parse('5'))
    const transport = http(rpcUrl)
    const chain = defineChain({
      id: terms.chainId,
      name: 'Sandbox',
      nativeCurrency: { name: 'USDC', symbol: 'USDC', decimals: 18 },
      rpcUrls: { default: { http: [rpcUrl] } },
    })
    const wallet = createWalletClient({ account, chain, transport })
    const node = createPublicClient({ chain, transport, pollingInterval: 50 })
    const { address: usdc } = terms.usdc
    const approved = await wallet.writeContract({
      address: usdc,
      abi,
      functionName: 'approve',
      args: [terms.gatewayWallet, atomic],
    })
    await node.waitForTransactionReceipt({ hash: approved })
    const sent = await wallet.writeContract({
      address: terms.gatewayWallet,
      abi,
      functionName: 'deposit',
      args: [usdc, atomic],
    })
    await node.waitForTransactionReceipt({ hash: sent })
    await using gatewayClient = createGatewayClient({
      url: gatewayUrl,
      token: gatewayToken,
      domain: terms.gatewayDomain,
    })
    await until(async () => (await gatewayClient.balance(address)) >= atomic)
  }
  const network = `eip155:${terms.chainId}` as const
  const scheme = new BatchEvmScheme(account)
  // Its own control, of the owner of the wallet: the library pays in tokens that it knows, and in those that are named here.
  const allowedAssets = [{ network, asset: terms.usdc.address, maxAmountPerPayment: '1000000' }]
  const client = new x402Client().register(network, scheme as never).setSpendControls({ allowedAssets })
  const signingIn = (inner: typeof fetch = fetch) => wrapFetchWithSIWx(inner, account) as typeof fetch
  return {
    account,
    address,
    /** Pays what is asked, and shows no credit. */
    paying: wrapFetchWithPayment(fetch, client) as typeof fetch,
    /** Shows its credit first, and pays what that does not cover. */
    netting: (inner: typeof fetch = fetch) => wrapFetchWithPayment(signingIn(inner), client) as typeof fetch,
    signingIn,
    /** The header that pays what a 402 asks for. */
    async sign(
      required: Response,
      change: (payload: PaymentPayload) => object = (payload) => payload,
    ): Promise<string> {
      const asked = decodePaymentRequiredHeader(required.headers.get('payment-required')!)
      const payload = (await client.createPaymentPayload(asked)) as unknown as PaymentPayload
      return encodePaymentSignatureHeader(change(payload) as never)
    },
  }
}

export type PaymentPayload = {
  readonly accepted: Record<string, unknown> & { readonly amount: string; readonly extra: Record<string, unknown> }
  readonly payload: { readonly authorization: Record<string, string>; readonly signature: string }
}

export type X402Wallet = Awaited<ReturnType<typeof openX402Wallet>>
