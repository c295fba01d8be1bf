import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'
import { type Address, encodeFunctionData, type Hash, type Hex, keccak256, pad, toHex } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import type { Alarm } from '../../gateway/alarm.ts'
import { type Gateway, type GatewayOptions, startGateway } from '../../gateway/server.ts'
import type { ChainServer } from '../../sandbox/chain/server.ts'
import { atEnd } from './at-end.ts'
import { burnIntentTypes, transferFields } from './circle-types.ts'
import { type TestDatabase, testDatabase } from './postgres.ts'
import { account, chainId, gasAllowance, publicClient, signCall, startChain, usdc } from './sandbox-chain.ts'
import { untilFits } from './until.ts'

/** A gateway over a chain and a database of its own, which end with the test. */
export type GatewayBench = {
  readonly chain: ChainServer
  readonly wallet: Address
  readonly databaseUrl: string
  readonly database: TestDatabase['database']
  readonly alarms: Alarm[]
  /** A gateway on the same chain and database. */
  start(options?: Partial<GatewayOptions>): Promise<Gateway>
}

export const relayerKey = keccak256(toHex('relayer'))
export const seller = account('seller')
/** What the service sends to its gateway. */
export const token = 'the-token-between-service-and-gateway'
const weekSeconds = 7 * 86_400

export async function openBench(test: TestContext): Promise<GatewayBench> {
  // Ends before the chain, whose own end is asked for later, and the gateways before their database.
  const stack = new AsyncDisposableStack()
  atEnd(test, () => stack.disposeAsync())
  const [database, chain] = await Promise.all([testDatabase(), startChain(test)])
  stack.defer(() => database.drop())
  await chain.ready
  const wallet = chain.addresses.gateway
  const alarms: Alarm[] = []
  const settings = (options: Partial<GatewayOptions> = {}): GatewayOptions => ({
    host: '127.0.0.1',
    port: 0,
    databaseUrl: database.url,
    chainRpcUrl: chain.url,
    usdcAddress: usdc,
    gatewayWalletAddress: wallet,
    payees: [seller.address],
    token,
    relayerKey,
    // Most tests move a few thousandths.
    withdrawalMin: 1n,
    batchMs: 20,
    pollMs: 20,
    onAlarm: (alarm) => alarms.push(alarm),
    onError: (error) => {
      throw error
    },
    ...options,
  })
  const start = async (options: Partial<GatewayOptions> = {}) => {
    const gateway = await startGateway(settings(options))
    let stopped: Promise<void> | undefined
    const stop = () => (stopped ??= gateway.stop())
    stack.defer(stop)
    return { ...gateway, stop }
  }
  return { chain, wallet, databaseUrl: database.url, database: database.database, alarms, start }
}

/** Gives an address test USDC, which it deposits. */
export async function deposit({ chain, wallet }: GatewayBench, payer: PrivateKeyAccount, value: bigint): Promise<Hash> {
  await chain.admin.giveUsdc(payer.address, value + gasAllowance)
  const approve = encodeFunctionData({ abi: devUsdcAbi, functionName: 'approve', args: [wallet, value] })
  await sendCall(chain, payer, usdc, approve)
  return sendCall(
    chain,
    payer,
    wallet,
    encodeFunctionData({ abi: settlementGatewayAbi, functionName: 'deposit', args: [usdc, value] }),
  )
}

/** Sends a transaction, and sees that it was carried out. */
export async function sendCall(chain: ChainServer, from: PrivateKeyAccount, to: Hex, data: Hex): Promise<Hash> {
  const client = publicClient(chain.url)
  const nonce = await client.getTransactionCount({ address: from.address })
  const hash = await client.sendRawTransaction({
    serializedTransaction: await signCall(from, nonce, to, data, 500_000n),
  })
  const { status } = await client.getTransactionReceipt({ hash })
  assert.equal(status, 'success')
  return hash
}

/** The spendable balance of a depositor, read from the contract. */
export async function onChain({ chain, wallet }: GatewayBench, address: Address): Promise<bigint> {
  const args = [usdc, address] as const
  return publicClient(chain.url).readContract({
    address: wallet,
    abi: settlementGatewayAbi,
    functionName: 'availableBalance',
    args,
  })
}

export type PaymentChange = {
  readonly to?: Address
  readonly value?: bigint
  readonly nonce?: Hex
  readonly validAfter?: bigint
  readonly validBefore?: bigint
  readonly receiptHash?: Hex
  readonly chainId?: number
  readonly signedWallet?: Address
}

/** The body of `settle`, as a client of x402 makes it, with this library's typed data. */
export async function paymentBody(wallet: Address, payer: PrivateKeyAccount, change: PaymentChange = {}) {
  const now = BigInt(Math.floor(Date.now() / 1000))
  const message = {
    from: payer.address,
    to: change.to ?? seller.address,
    value: change.value ?? 1_000n,
    validAfter: change.validAfter ?? now - 600n,
    validBefore: change.validBefore ?? now + BigInt(weekSeconds) + 86_400n,
    nonce: change.nonce ?? toHex(randomBytes(32)),
  }
  const signature = await payer.signTypedData({
    domain: {
      name: 'GatewayWalletBatched',
      version: '1',
      chainId: change.chainId ?? chainId,
      verifyingContract: change.signedWallet ?? wallet,
    },
    types: { TransferWithAuthorization: transferFields },
    primaryType: 'TransferWithAuthorization',
    message,
  })
  const { value, validAfter, validBefore, ...addresses } = message
  const requirements = {
    scheme: 'exact',
    network: `eip155:${chainId}`,
    asset: usdc,
    amount: value.toString(),
    payTo: message.to,
    maxTimeoutSeconds: 604_900,
    extra: { name: 'GatewayWalletBatched', version: '1', verifyingContract: wallet as string },
  }
  const authorization = {
    ...addresses,
    value: value.toString(),
    validAfter: validAfter.toString(),
    validBefore: validBefore.toString(),
  }
  return {
    paymentPayload: {
      x402Version: 2,
      resource: { url: 'http://example/', description: 'an answer', mimeType: 'application/json' },
      accepted: requirements,
      payload: { authorization, signature },
      ...(change.receiptHash === undefined ? {} : { extensions: { receipt: { hash: change.receiptHash } } }),
    },
    paymentRequirements: requirements,
  }
}

/** Fields that tests read; assertions check them. */
// biome-ignore lint/suspicious/noExplicitAny: an answer of any shape
export type AnswerBody = Record<string, any>

export type Answer = { readonly status: number; readonly body: AnswerBody; readonly link: string | null }

/** As the service asks, or with another authorization; with none when it is empty. */
export async function ask(
  url: string,
  path: string,
  body?: unknown,
  authorization = `Bearer ${token}`,
): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    ...(body === undefined ? {} : { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) }),
    headers: { 'content-type': 'application/json', ...(authorization === '' ? {} : { authorization }) },
  })
  return { status: response.status, body: (await response.json()) as AnswerBody, link: response.headers.get('link') }
}

/** Settles a payment that must be taken; the id of its transfer. */
export async function settle(url: string, body: unknown): Promise<string> {
  const answer = await ask(url, '/v1/x402/settle', body)
  assert.equal(answer.body.success, true, JSON.stringify(answer.body))
  return answer.body.transaction
}

export async function transferOf(url: string, id: string) {
  return (await ask(url, `/v1/x402/transfers/${id}`)).body
}

/** Waits for the end of a transfer. */
export async function ended(url: string, id: string) {
  return untilFits(
    () => transferOf(url, id),
    ({ status }) => status === 'completed' || status === 'failed',
  )
}

/** Waits until the gateway has seen this balance of a depositor; in decimal text. */
export async function untilBalance(url: string, address: Address, balance: string): Promise<void> {
  await untilFits(
    () => balanceOf(url, address),
    (found) => found === balance,
  )
}

export async function balanceOf(url: string, address: Address): Promise<string> {
  const { body } = await ask(url, '/v1/balances', { token: 'USDC', sources: [{ depositor: address }] })
  return body.balances[0].balance
}

export type IntentChange = {
  readonly recipient?: Address
  readonly value?: bigint
  readonly salt?: Hex
  readonly maxBlockHeight?: bigint
}

/** One entry of the body of `transfer`. */
export async function burnIntent(wallet: Address, depositor: PrivateKeyAccount, change: IntentChange = {}) {
  const spec = {
    version: 1,
    sourceDomain: chainId,
    destinationDomain: chainId,
    sourceContract: pad(wallet),
    destinationContract: pad(wallet),
    sourceToken: pad(usdc),
    destinationToken: pad(usdc),
    sourceDepositor: pad(depositor.address),
    destinationRecipient: pad(change.recipient ?? account('owner').address),
    sourceSigner: pad(depositor.address),
    destinationCaller: pad('0x0'),
    value: change.value ?? 1_000n,
    salt: change.salt ?? toHex(randomBytes(32)),
    hookData: '0x',
  } as const
  const message = { maxBlockHeight: change.maxBlockHeight ?? 1_000_000_000n, maxFee: 0n, spec }
  const signature = await depositor.signTypedData({
    domain: { name: 'GatewayWallet', version: '1' },
    types: burnIntentTypes,
    primaryType: 'BurnIntent',
    message,
  })
  return {
    burnIntent: {
      maxBlockHeight: message.maxBlockHeight.toString(),
      maxFee: '0',
      spec: { ...spec, value: spec.value.toString() },
    },
    signature,
  }
}

export { account }
