import { setTimeout as sleep } from 'node:timers/promises'
import { createPublicClient, createWalletClient, defineChain, http, parseAbi } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { NoSandboxError, SandboxOrderError, sandboxOrders } from '../../sandbox/orders.ts'
import { format, fromAtomic, parse, type Usdc } from '../money/usdc.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { readSettlementEndpoints, type SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Address, Hex } from '../signer/address.ts'
import { type Command, CommandError } from './command.ts'
import { readAmount } from './read-options.ts'
import { readSandboxFile } from './sandbox-file.ts'

const creditMsMax = 60_000
const pollMs = 100
/** Beside what is deposited: the wallet pays its own gas. */
const gas = parse('1')

const abi = parseAbi([
  'function approve(address spender, uint256 value) returns (bool)',
  'function deposit(address token, uint256 value)',
])

export const x402Command: Command = {
  summary: 'pay without an account: fund a wallet in the sandbox',
  usage: [
    [
      'penny x402 demo',
      'Fund a new wallet, deposit at the gateway, and print a program that buys a completion with it',
    ],
    ['--amount USDC', 'How much to deposit; 1 by default'],
  ],
  options: { amount: { type: 'string' } },
  verbs: ['demo'],
  wordsMax: 1,
  async run({ words, options, config, output }) {
    if (words[0] !== 'demo') throw new CommandError('Use: penny x402 demo', 2)
    const amount = readAmount('amount', typeof options.amount === 'string' ? options.amount : '1')
    const endpoints = readSettlementEndpoints(config.dataDir)
    const baseUrl = readSandboxFile(config.dataDir)?.base_url
    if (baseUrl === undefined)
      throw new CommandError('No sandbox has run on this data folder. Start one with penny start.')
    const key = generatePrivateKey()
    const account = privateKeyToAccount(key)
    try {
      await sandboxOrders(config.dataDir).faucet(account.address, fromAtomic(amount + gas))
    } catch (error) {
      if (error instanceof NoSandboxError || error instanceof SandboxOrderError) throw new CommandError(error.message)
      throw error
    }
    if (!output.json) output.write(`Sent test USDC to the new wallet ${account.address}.\n`)
    await depositAtGateway(endpoints, key, amount)
    if (!output.json)
      output.write(`Deposited ${format(amount)} USDC at the gateway. It pays with this, without an account here.\n`)
    const program = programOf(endpoints, baseUrl, key)
    output.write(
      output.json
        ? `${JSON.stringify({ address: account.address, private_key: key, deposited_atomic: amount.toString(), program })}\n`
        : `\nnpm install openai viem @x402/fetch @x402/core @x402/evm @x402/extensions @circle-fin/x402-batching\n\n${program}\n`,
    )
    return 0
  },
}

/** As any wallet does it: allow the contract to take the USDC, then deposit it. */
async function depositAtGateway(endpoints: SettlementEndpoints, key: Hex, amount: Usdc): Promise<void> {
  const { rpcUrl, terms, gatewayUrl: url, gatewayToken: token } = endpoints
  const transport = http(rpcUrl)
  const chain = defineChain({
    id: terms.chainId,
    name: 'Sandbox chain',
    nativeCurrency: { name: 'USDC', symbol: 'USDC', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
  })
  const account = privateKeyToAccount(key)
  const wallet = createWalletClient({ account, chain, transport })
  const node = createPublicClient({ chain, transport, pollingInterval: pollMs })
  const { address: usdc } = terms.usdc
  const send = async (call: {
    readonly address: Address
    readonly functionName: 'approve' | 'deposit'
    readonly first: Address
  }) => {
    const { address, functionName, first } = call
    const hash = await wallet.writeContract({ address, functionName, abi, args: [first, amount] })
    const { status } = await node.waitForTransactionReceipt({ hash })
    if (status !== 'success') throw new CommandError(`The transaction ${hash} failed.`)
  }
  await send({ address: usdc, functionName: 'approve', first: terms.gatewayWallet })
  await send({ address: terms.gatewayWallet, functionName: 'deposit', first: usdc })
  await using gatewayClient = createGatewayClient({ url, token, domain: terms.gatewayDomain })
  const deadline = performance.now() + creditMsMax
  while ((await gatewayClient.balance(account.address.toLowerCase() as Address)) < amount) {
    if (performance.now() > deadline) throw new CommandError('The gateway has not seen the deposit yet. Try again.')
    await sleep(pollMs)
  }
}

/** Public packages, unmodified. The same program is in docs/x402.md. */
function programOf({ terms }: SettlementEndpoints, baseUrl: string, key: Hex): string {
  const network = `eip155:${terms.chainId}`
  const limit = `{ allowedAssets: [{ network: '${network}', asset: '${terms.usdc.address}', maxAmountPerPayment: '50000' }] }`
  const question = "{ model: 'gpt-5.6-terra', stream: true, messages: [{ role: 'user', content: 'What is a penny?' }] }"
  return `import { BatchEvmScheme } from '@circle-fin/x402-batching/client'
import { wrapFetchWithSIWx } from '@x402/extensions/sign-in-with-x'
import { wrapFetchWithPayment, x402Client } from '@x402/fetch'
import OpenAI from 'openai'
import { privateKeyToAccount } from 'viem/accounts'

const wallet = privateKeyToAccount('${key}')
const client = new x402Client().register('${network}', new BatchEvmScheme(wallet)).setSpendControls(${limit})
const pay = wrapFetchWithPayment(wrapFetchWithSIWx(fetch, wallet), client)
const openai = new OpenAI({ baseURL: '${baseUrl.replace(/\/v1$/, '/x402/v1')}', apiKey: 'none', fetch: pay })
for await (const chunk of await openai.chat.completions.create(${question})) process.stdout.write(chunk.choices[0]?.delta.content ?? '')
`
}
