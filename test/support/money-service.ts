import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createPublicClient, createWalletClient, defineChain, type Hex, http, parseAbi } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { type SandboxClient, sandboxClient } from '../../sandbox/client.ts'
import { startModelServer } from '../../sandbox/model/server.ts'
import { readConfig } from '../../src/config/config.ts'
import { createKey } from '../../src/identity/api-keys.ts'
import { type Account, createAccount, findAccount } from '../../src/ledger/accounts.ts'
import { requestDepositAddress } from '../../src/ledger/deposit-addresses.ts'
import { fromAtomic, parse } from '../../src/money/usdc.ts'
import type { Service } from '../../src/run/service.ts'
import type { SettlementEndpoints } from '../../src/settlement/settlement-endpoints.ts'
import { atEnd, type Ending } from './at-end.ts'
import { startTestedService } from './documented-answers.ts'
import { partitions } from './ledger.ts'
import { testDatabase } from './postgres.ts'
import { gasAllowance } from './sandbox-chain.ts'
import { until } from './until.ts'

/** The whole service with its signer, its settlement, its gateway and its chain: everything but a real network. */
export type MoneyService = {
  readonly service: Service
  readonly baseUrl: string
  readonly dataDir: string
  readonly databaseUrl: string
  readonly money: SettlementEndpoints
  readonly sandbox: SandboxClient
  openAccount(): Promise<MoneyAccount>
  stop(): Promise<void>
}

export type MoneyAccount = Account & { readonly apiKey: string; readonly address: Hex }

export type MoneyServiceOptions = {
  readonly environment?: Readonly<Record<string, string>>
  readonly ratesNow?: () => number
  /** Starts on what an earlier one left. */
  readonly continues?: { readonly dataDir: string; readonly databaseUrl: string }
}

const usdcAbi = parseAbi([
  'function transfer(address to, uint256 value) returns (bool)',
  'function balanceOf(address account) view returns (uint256)',
])
const gatewayAbi = parseAbi(['function totalBalance(address token, address depositor) view returns (uint256)'])

export async function startMoneyService(t: Ending, options: MoneyServiceOptions = {}): Promise<MoneyService> {
  const ledger =
    options.continues === undefined
      ? await testDatabase()
      : { url: options.continues.databaseUrl, drop: async () => {} }
  const dataDir = options.continues?.dataDir ?? mkdtempSync(join(tmpdir(), 'penny-money-'))
  const model = await startModelServer({ host: '127.0.0.1', port: 0, tokensPerSecond: 0 })
  const config = readConfig({
    PORT: '0',
    WEB_PROCESSES: '1',
    DATA_DIR: dataDir,
    DATABASE_URL: ledger.url,
    UPSTREAM_BASE_URL: model.url,
    LOG_LEVEL: process.env.TEST_LOG_LEVEL ?? 'silent',
    LEDGER_PARTITIONS: String(partitions),
    GATEWAY_BATCH_MS: '300',
    SEARCH_PROVIDER: 'none',
    DRAIN_MS: '2000',
    ...options.environment,
  })
  const service = await startTestedService(config, { ratesNow: options.ratesNow })
  let stopped: Promise<void> | undefined
  const stop = () => (stopped ??= service.stop().finally(() => model.close()))
  atEnd(t, async () => {
    await stop()
    await ledger.drop()
    if (options.continues === undefined) rmSync(dataDir, { recursive: true, force: true })
  })
  return {
    service,
    dataDir,
    databaseUrl: ledger.url,
    baseUrl: `${service.publicUrl}/v1`,
    money: service.money!,
    sandbox: sandboxClient(dataDir),
    stop,
    async openAccount() {
      const account = await createAccount(service.database, 'test', config.ledgerPartitions)
      const { secret } = await createKey(service.database, {
        partition: account.partition,
        accountId: account.id,
        name: 'test',
      })
      const address = await until(() => requestDepositAddress(service.database, account))
      return { ...account, apiKey: secret, address: address as Hex }
    },
  }
}

export async function accountNow({ service }: MoneyService, { partition, id }: Account): Promise<Account> {
  return (await findAccount(service.database, partition, id))!
}

/** A wallet outside the service, with test USDC and gas, driven by a plain script, as an exchange does. */
export async function openWallet(money: MoneyService, amount: string) {
  const account = privateKeyToAccount(generatePrivateKey())
  // Gas is paid from the same balance.
  if (parse(amount) > 0n) await money.sandbox.faucet(account.address, fromAtomic(parse(amount) + gasAllowance))
  const transport = http(money.money.rpcUrl)
  const chain = defineChain({
    id: money.money.terms.chainId,
    name: 'Sandbox',
    nativeCurrency: { name: 'USDC', symbol: 'USDC', decimals: 18 },
    rpcUrls: { default: { http: [money.money.rpcUrl] } },
  })
  const wallet = createWalletClient({ account, chain, transport })
  const usdc = money.money.terms.usdc.address
  return {
    address: account.address.toLowerCase() as Hex,
    send: (to: Hex, atomic: bigint) =>
      wallet.writeContract({ address: usdc, abi: usdcAbi, functionName: 'transfer', args: [to, atomic] }),
    /** As a wallet does that takes Arc for any other chain: only the system address logs it. */
    sendNatively: (to: Hex, atomic: bigint) => wallet.sendTransaction({ to, value: atomic * 10n ** 12n }),
  }
}

export async function usdcOf({ money }: MoneyService, address: Hex): Promise<bigint> {
  const client = createPublicClient({ transport: http(money.rpcUrl) })
  return client.readContract({
    address: money.terms.usdc.address,
    abi: usdcAbi,
    functionName: 'balanceOf',
    args: [address],
  })
}

/** What the gateway's contract has for that depositor. */
export async function gatewayOf({ money }: MoneyService, depositor: Hex): Promise<bigint> {
  const client = createPublicClient({ transport: http(money.rpcUrl) })
  const { usdc, gatewayWallet } = money.terms
  return client.readContract({
    address: gatewayWallet,
    abi: gatewayAbi,
    functionName: 'totalBalance',
    args: [usdc.address, depositor],
  })
}

/** Sums of the account's rows, as the auditor would add them up. */
export async function sums({ service }: MoneyService, { partition, id }: Account) {
  const [row] = await service.database.query<{ deposited: bigint; charged: bigint; paid: bigint; open: bigint }>(
    `select (select coalesce(sum(amount), 0)::bigint from deposits d where d.partition = $1 and d.account_id = $2) as deposited,
            coalesce(sum(r.charged), 0)::bigint as charged,
            (select coalesce(sum(p.value), 0) from payments p where p.partition = $1 and p.account_id = $2
                                                             and p.state = 'completed')::bigint as paid,
            (select count(*) from payments p where p.partition = $1 and p.account_id = $2 and p.state not in ('completed', 'failed'))::bigint as open
       from requests r where r.partition = $1 and r.account_id = $2`,
    [partition, id],
  )
  return row!
}

export async function ask(money: MoneyService, account: MoneyAccount, maxTokens = 64): Promise<Response> {
  const response = await fetch(`${money.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${account.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: maxTokens, messages: [{ role: 'user', content: 'What is a penny?' }] }),
  })
  await response.arrayBuffer()
  return response
}
