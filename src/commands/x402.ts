import { setTimeout as sleep } from 'node:timers/promises'
import { createPublicClient, createWalletClient, defineChain, http, parseAbi } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { NoSandboxError, SandboxRefusalError, sandboxClient } from '../../sandbox/client.ts'
import { format, fromAtomic, parse, type Usdc } from '../money/usdc.ts'
import type { Hex } from '../receipts/hex.ts'
import { createGatewayClient } from '../settlement/gateway-client.ts'
import { readSettlementEndpoints, type SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Address } from '../signer/address.ts'
import { type Command, CommandError } from './command.ts'
import { readAmount } from './read-options.ts'
import { readSandboxFile } from './sandbox-file.ts'

const creditMsMax = 60_000
const pollMs = 100
/** In addition to the deposit: the wallet pays its own gas. */
const gas = parse('1')

/** Versions that were tested together. Later ones may depend on packages that a registry does not have yet. */
export const demoPackages = {
  openai: '7.53.0',
  viem: '2.57.1',
  '@x402/fetch': '2.27.0',
  '@x402/core': '2.27.0',
  '@x402/evm': '2.27.0',
  '@x402/extensions': '2.27.0',
  '@circle-fin/x402-batching': '3.3.0',
}

const abi = parseAbi([
  'function approve(address spender, uint256 value) returns (bool)',
  'function deposit(address token, uint256 value)',
])

export const x402Command: Command = {
  usage: [
    [
      'penny x402 demo',
      'Fund a new wallet, deposit at the gateway, and print a program that buys a completion with it',
    ],
    ['--amount USDC', 'How much to deposit; 1 by default'],
  ],
  options: { amount: { type: 'string' } },
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
      await sandboxClient(config.dataDir).faucet(account.address, fromAtomic(amount + gas))
    } catch (error) {
      if (error instanceof NoSandboxError || error instanceof SandboxRefusalError) throw new CommandError(error.message)
      throw error
    }
    if (!output.json) output.write(`Sent test USDC to the new wallet ${account.address}.\n`)
    await depositAtGateway(endpoints, key, amount)
    if (!output.json)
      output.write(
        `Deposited ${format(amount)} USDC at the gateway. The wallet can now pay for requests without an account.\n`,
      )
    const programs = {
      program: programOf(endpoints, baseUrl, key),
      refund_program: refundProgramOf(baseUrl, key),
    }
    const wallet = { address: account.address, private_key: key, deposited_atomic: amount.toString() }
    output.write(output.json ? `${JSON.stringify({ ...wallet, ...programs })}\n` : instructionsOf(programs))
    return 0
  },
}

/** Deposits like any wallet: allow the contract to take the USDC, then call it. */
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

type Programs = { readonly program: string; readonly refund_program: string }

/** The whole text can be pasted into a shell. */
function instructionsOf({ program, refund_program }: Programs): string {
  const packages = Object.entries(demoPackages).map(([name, version]) => `${name}@${version}`)
  return `
Paste this into a shell. It buys a streamed completion with the wallet:

cd "$(mktemp -d)" && echo '{}' > package.json
npm install ${packages.join(' ')}
cat > pay.mjs <<'END'
${program}END
cat > refund.mjs <<'END'
${refund_program}END
node pay.mjs

node pay.mjs      run again: pays less, because the unused part of the first payment is credit
node refund.mjs   pays the rest of the credit back to the wallet
`
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
const openai = new OpenAI({ baseURL: '${walletUrlOf(baseUrl)}', apiKey: 'none', fetch: pay })
for await (const chunk of await openai.chat.completions.create(${question})) process.stdout.write(chunk.choices[0]?.delta.content ?? '')
`
}

function refundProgramOf(baseUrl: string, key: Hex): string {
  return `import { wrapFetchWithSIWx } from '@x402/extensions/sign-in-with-x'
import { privateKeyToAccount } from 'viem/accounts'

const signedIn = wrapFetchWithSIWx(fetch, privateKeyToAccount('${key}'))
console.log(await (await signedIn('${walletUrlOf(baseUrl)}/refund', { method: 'POST' })).json())
`
}

function walletUrlOf(baseUrl: string): string {
  return baseUrl.replace(/\/v1$/, '/x402/v1')
}
