import { sandboxClient } from '../../sandbox/client.ts'
import type { ChainFunds, ChainServices, SandboxControls } from '../api/chain-services.ts'
import { type Config, ownerCooldownOf, usesSandboxModel } from '../config/config.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { moveMembers } from '../identity/move-members.ts'
import { findAccount } from '../ledger/accounts.ts'
import { beginAgain, openDemoAccount, testMoney } from '../ledger/demo-account.ts'
import { parseRequestId } from '../ledger/request-id.ts'
import { Funds } from '../settlement/funds.ts'
import { findPublishedTerms } from '../settlement/published-terms.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { readSolvency } from '../settlement/solvency.ts'
import { openSigner, type Signer } from '../signer/signer.ts'

export type ChainServicesOptions = {
  readonly config: Config
  readonly database: Database
  /** Undefined on a machine that does not settle. */
  readonly money: SettlementEndpoints | undefined
  readonly stack: AsyncDisposableStack
}

// Loaded on demand: the receipts code imports hundreds of files, which would slow down the start.
const receipts = () => import('../settlement/find-receipt.ts')
const bundles = () => import('../settlement/receipt-rows.ts')

// Arc's own chain ids. Any other id is a private chain, which we assume has real money.
const arcTestnets = [5_042_001, 5_042_002]
const arc: Readonly<Record<number, { readonly name: string; readonly explorer: string; readonly rpc: string }>> = {
  5042: { name: 'Arc', explorer: 'https://explorer.arc.io', rpc: 'https://rpc.mainnet.arc.io' },
  5042002: {
    name: 'Arc Testnet',
    explorer: 'https://explorer.testnet.arc.io',
    rpc: 'https://rpc.testnet.arc.io',
  },
}

/** Opens the parts of the dashboard that need the chain. */
export function openChainServices(options: ChainServicesOptions): ChainServices {
  const { config, database, money, stack } = options
  const isSandbox = config.chain === undefined
  const published = async () => money ?? findPublishedTerms(database)
  const reports: Pick<ChainServices, 'findReceipt' | 'exportReceipts' | 'solvency'> = {
    async findReceipt(text) {
      const [id, parts] = [parseRequestId(text), await published()]
      if (id === undefined || parts === undefined) return undefined
      const { findReceipt } = await receipts()
      return findReceipt({ database, ...parts }, id)
    },
    async exportReceipts(account) {
      const parts = await published()
      if (parts === undefined) return undefined
      const { writeReceipts } = await bundles()
      return writeReceipts({ database, ...parts }, account)
    },
    async solvency() {
      const [parts, report] = await Promise.all([published(), readSolvency(database)])
      return { ok: null, issuer: parts?.issuer, ...report }
    },
  }
  if (money === undefined) {
    return {
      environment: isSandbox ? 'sandbox' : 'live',
      sandbox: isSandbox ? localSignIn(options) : undefined,
      ...reports,
    }
  }
  const signer = stack.use(openSigner({ dataDir: config.dataDir, waitMsMax: 5_000 }))
  const funds = openChainFunds(options, signer, money)
  return {
    environment: isSandbox ? 'sandbox' : arcTestnets.includes(money.terms.chainId) ? 'testnet' : 'live',
    sandbox: isSandbox ? sandboxControls(options, money, funds) : undefined,
    funds,
    ...reports,
  }
}

function openChainFunds(
  { config, database }: ChainServicesOptions,
  signer: Signer,
  { terms, rpcUrl }: SettlementEndpoints,
): ChainFunds {
  const isSandbox = config.chain === undefined
  const funds = new Funds({ database, signer, withdrawalMin: config.withdrawalMin })
  const known = arc[terms.chainId]
  return {
    chain: {
      id: terms.chainId,
      name: isSandbox ? 'Sandbox chain' : (known?.name ?? `Chain ${terms.chainId}`),
      usdcAddress: terms.usdc.address,
      takesCoin: config.chain?.depositLogs !== 'token',
      gatewayAddress: terms.gatewayWallet,
      explorerUrl: known?.explorer,
      publicRpcUrl: isSandbox ? rpcUrl : known?.rpc,
    },
    depositMin: config.sweepMin,
    ownAddress: ({ partition, accountId }) => funds.ownAddress({ partition, id: accountId }),
    depositAddress: ({ partition, accountId }) => funds.depositAddress({ partition, id: accountId }),
    async requestWithdrawal({ partition, accountId, id, amount }, alongside) {
      await funds.withdraw({ partition, id: accountId }, id, amount, alongside)
    },
    ownerCooldownMs: ownerCooldownOf(config),
    async registerOwner({ partition, accountId, address, isConfirmed }, alongside) {
      const account = { partition, id: accountId }
      const { usableFromMs } = await funds.registerOwner(account, address, isConfirmed, alongside)
      return { address, usableFrom: new Date(usableFromMs) }
    },
  }
}

/** For a sandbox without a chain: only signs the developer in. */
function localSignIn({ database }: ChainServicesOptions): SandboxControls {
  return {
    async localAccount() {
      const { partition, id } = await openDemoAccount(database)
      return { partition, accountId: id }
    },
  }
}

/** Actions that only a sandbox offers. */
function sandboxControls(
  options: ChainServicesOptions,
  money: SettlementEndpoints,
  funds: ChainFunds,
): SandboxControls {
  const client = sandboxClient(options.config.dataDir)
  const faucet = async (account: AccountRef, wallet?: string) => {
    const txHash = await client.faucet(wallet ?? (await funds.depositAddress(account)), testMoney)
    return { amount: testMoney, txHash }
  }
  return {
    ...localSignIn(options),
    faucet,
    async beginAgain(account) {
      const begun = await replaceAccount(options, account)
      await faucet(begun)
      return begun
    },
    async mine(blocks) {
      await client.mine(blocks)
      const { createPublicClient, http } = await import('viem')
      const chain = createPublicClient({ transport: http(money.rpcUrl) })
      return { block: await chain.getBlockNumber({ cacheTime: 0 }) }
    },
    // Absent with the operator's own providers: their answers cannot be made to fail.
    ...(usesSandboxModel(options.config) && {
      failNext: () => client.failNext(),
      slowNext: (milliseconds: number) => client.slowNext(milliseconds),
    }),
  }
}

async function replaceAccount({ config, database }: ChainServicesOptions, account: AccountRef): Promise<AccountRef> {
  const left = (await findAccount(database, account.partition, account.accountId))!
  return database.transaction(async (connection) => {
    const { partition, id } = await beginAgain(connection, left, config.ledgerPartitions)
    const begun = { partition, accountId: id }
    await moveMembers(connection, account, begun)
    return begun
  })
}
