import assert from 'node:assert/strict'
import { after, before, beforeEach, type TestContext } from 'node:test'
import { encodeFunctionData, type Hex } from 'viem'
import { devUsdcAbi } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { type SenderOptions, TransactionSender } from '../../src/chain/lands-once.ts'
import { ChainNode } from '../../src/chain/node.ts'
import { createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { assignAddress, type DepositAccount } from '../../src/ledger/deposit-addresses.ts'
import { type ListedDeposit, listDeposits } from '../../src/ledger/deposits.ts'
import { paymentTerms } from '../../src/settlement/authorization.ts'
import { openChain } from '../../src/settlement/chain.ts'
import { type DepositParts, sweepDeposits, watchDeposits } from '../../src/settlement/deposits.ts'
import { createGatewayClient } from '../../src/settlement/gateway-client.ts'
import type { Address } from '../../src/signer/address.ts'
import { askCustodian, createSigner } from '../../src/signer/signer.ts'
import { type SigningTerms, usdcDomain } from '../../src/signer/signing-terms.ts'
import { account as chainAccount, type GatewayBench, openBench, sendCall } from './gateway.ts'
import { partitions } from './ledger.ts'
import { type RpcProxy, startRpcProxy } from './rpc-proxy.ts'
import { chainId, gasAllowance, publicClient, usdc } from './sandbox-chain.ts'
import { createCustodian, keys, terms as signingTerms } from './signing.ts'
import { until } from './until.ts'

export const relayer = chainAccount('sweeper')
export const stranger = chainAccount('stranger')
/** The gateway's own relayer; it sends nothing in these tests. */
export const blacklister = chainAccount('relayer')
export const sweepMin = 100_000n

/** For the tests of one file: the deposit code over our own gateway and chain, with a node in between that may do anything. */
export function depositSuite() {
  let bench: GatewayBench
  let proxy: RpcProxy
  let parts: DepositParts
  const alarms: string[] = []
  const cleanUps: (() => unknown)[] = []

  before(async () => {
    const context = { after: (cleanUp: () => unknown) => cleanUps.push(cleanUp) } as unknown as TestContext
    bench = await openBench(context)
    const gateway = await bench.start()
    proxy = await startRpcProxy(context, bench.chain.url)
    await bench.chain.admin.giveUsdc(relayer.address, 100_000_000n)
    const gatewayWallet = bench.wallet.toLowerCase() as Address
    const terms: SigningTerms = {
      ...signingTerms,
      chainId,
      gatewayWallet,
      gatewayMinter: gatewayWallet,
      gatewayDomain: chainId,
    }
    const gatewayClient = createGatewayClient({ url: gateway.url, domain: chainId })
    cleanUps.push(() => gatewayClient.close())
    parts = {
      database: bench.database,
      chain: await openChain({ rpcUrl: proxy.url, usdc: terms.usdc.address, gatewayWallet, node: openNode() }),
      gatewayClient,
      signer: createSigner({ ask: askCustodian(createCustodian(context, { terms })), onFault: assert.ifError }),
      terms: paymentTerms(terms, 0),
      usdcDomain: usdcDomain(terms),
      sender: openSender('sweeper'),
      sweepMin,
      failpoint: () => {},
      onAlarm: (what) => void alarms.push(what),
    }
  })

  beforeEach(() => {
    proxy.fault = undefined
    alarms.length = 0
  })

  after(async () => {
    const violations = await findViolations(bench.database)
    for (const cleanUp of cleanUps.reverse()) await cleanUp()
    assert.deepEqual(violations, [])
  })

  async function openAccount(): Promise<DepositAccount> {
    const { partition, id } = await createAccount(bench.database, 'test', partitions)
    const account = { partition, id, address: keys.ofAccount(id).address }
    await assignAddress(bench.database, account)
    return account
  }

  /** Waits for nothing. */
  function openNode(): ChainNode {
    let nowMs = 0
    const sleep = async (ms: number) => {
      nowMs += ms
    }
    return new ChainNode(proxy.url, { clock: { now: () => nowMs, sleep } })
  }

  /** Sends with that key, over the node that may lie. */
  function openSender(name: string, options: Partial<SenderOptions> = {}): TransactionSender {
    return new TransactionSender({
      node: openNode(),
      chainId,
      account: chainAccount(name),
      resendMs: 0,
      onProblem: ({ code }) => void alarms.push(code),
      ...options,
    })
  }

  /** Transactions of the relayer in the chain. */
  function sentCount(): Promise<number> {
    return publicClient(bench.chain.url).getTransactionCount({ address: relayer.address })
  }

  /** A plain transfer of test USDC, as from any wallet. */
  async function send(to: string, atomic: bigint): Promise<void> {
    await bench.chain.admin.giveUsdc(stranger.address, atomic + gasAllowance)
    const data = encodeFunctionData({ abi: devUsdcAbi, functionName: 'transfer', args: [to as Hex, atomic] })
    await sendCall(bench.chain, stranger, usdc, data)
  }

  /** One round as the settlement process runs it; what a faulty node makes of it is for the next round. */
  async function round(): Promise<void> {
    await watchDeposits(parts).catch(() => undefined)
    await sweepDeposits(parts).catch(() => undefined)
  }

  async function balanceOf({ partition, id }: DepositAccount): Promise<bigint> {
    return (await findAccount(bench.database, partition, id))!.gateway
  }

  async function untilCredited(account: DepositAccount, amount: bigint): Promise<void> {
    await until(async () => {
      await round()
      return (await balanceOf(account)) === amount
    })
  }

  async function depositsOf({ id }: DepositAccount): Promise<number> {
    return (await bench.database.query('select 1 from deposits where account_id = $1', [id])).length
  }

  /** As the account's holder sees them. */
  function shown({ partition, id }: DepositAccount): Promise<readonly ListedDeposit[]> {
    return listDeposits(bench.database, { partition, accountId: id }, { limit: 100 })
  }

  async function onChain({ address }: DepositAccount): Promise<bigint> {
    const args = [usdc, address as Hex] as const
    const client = publicClient(bench.chain.url)
    return client.readContract({ address: bench.wallet, abi: settlementGatewayAbi, functionName: 'totalBalance', args })
  }

  return {
    get bench() {
      return bench
    },
    get proxy() {
      return proxy
    },
    get parts() {
      return parts
    },
    /** What a person was called for since the test began. */
    alarms,
    /** Run after the file, the last one first. */
    cleanUps,
    openAccount,
    openSender,
    sentCount,
    send,
    round,
    balanceOf,
    untilCredited,
    depositsOf,
    shown,
    onChain,
  }
}
