import { randomUUID } from 'node:crypto'
import { type Hex, keccak256, parseTransaction } from 'viem'
import type { Database } from '../db/database.ts'
import type { SettlementFailpoint } from '../failpoints.ts'
import {
  assignAddress,
  creditGatewayDeposit,
  type DepositAccount,
  endSweep,
  findAccountsToSweep,
  findAccountsWithoutAddress,
  findOpenSweeps,
  listDepositAccounts,
  markSweepSent,
  moveCursor,
  planSweep,
  readCursor,
  recordArrival,
  type Sweep,
} from '../ledger/deposits.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { windowOf } from '../signer/signing-terms.ts'
import type { PaymentTerms } from './authorization.ts'
import { type Chain, signDepositTransaction } from './chain.ts'
import type { Rail } from './rail.ts'

export type DepositTools = {
  readonly database: Database
  readonly signer: Signer
  readonly chain: Chain
  readonly rail: Rail
  readonly terms: PaymentTerms
  /** The token's EIP-712 domain, under which deposits are signed. */
  readonly usdcDomain: Hex
  readonly relayer: { readonly address: Address; readonly key: Hex }
  /** Smaller amounts wait until they add up: bringing them in costs gas. */
  readonly sweepMin: bigint
  readonly failpoint: SettlementFailpoint
  readonly onAlarm: (what: string, details: object) => void
}

const blocksMax = 1_000n
const accountsMax = 100
const feeHeadroom = 2n
const minFeeWei = 20_000_000_000n

/** Gives every account the address that its key has. */
export async function assignAddresses({ database, signer }: DepositTools): Promise<number> {
  const accounts = await findAccountsWithoutAddress(database, accountsMax)
  for (const account of accounts) {
    await assignAddress(database, { ...account, address: await signer.addressOf(account.id) })
  }
  return accounts.length
}

/**
 * Reads the chain from where it stopped: USDC that reached deposit addresses is noted at once, and what the gateway's
 * contract has booked for an account is credited once the gateway itself has counted it. Returns how many were credited.
 */
export async function watchDeposits(tools: DepositTools): Promise<number> {
  const accounts = new Map((await listDepositAccounts(tools.database)).map((account) => [account.address, account]))
  const head = await tools.chain.finalBlock()
  await follow(tools, 'arrivals', head, (first, last) => noteArrivals(tools, accounts, first, last))
  const counted = await tools.rail.processedHeight()
  let credited = 0
  await follow(tools, 'deposits', head < counted ? head : counted, async (first, last) => {
    credited += await creditDeposits(tools, accounts, first, last)
  })
  return credited
}

/** In chunks, each remembered when it is done: a crash repeats one chunk, and every log counts once. */
async function follow(
  { database }: DepositTools,
  cursor: string,
  head: bigint,
  read: (first: bigint, last: bigint) => Promise<void>,
): Promise<void> {
  let next = ((await readCursor(database, cursor)) ?? -1n) + 1n
  while (next <= head) {
    const last = next + blocksMax - 1n < head ? next + blocksMax - 1n : head
    await read(next, last)
    await moveCursor(database, cursor, last)
    next = last + 1n
  }
}

type Accounts = ReadonlyMap<string, DepositAccount>

async function noteArrivals({ database, chain }: DepositTools, accounts: Accounts, first: bigint, last: bigint) {
  for (const { to, ...arrival } of await chain.arrivals([...accounts.keys()] as Address[], first, last)) {
    const account = accounts.get(to)
    if (account !== undefined && arrival.amount > 0n) await recordArrival(database, { account, ...arrival })
  }
}

async function creditDeposits(
  { database, chain, failpoint }: DepositTools,
  accounts: Accounts,
  first: bigint,
  last: bigint,
): Promise<number> {
  let credited = 0
  for (const { depositor, ...deposit } of await chain.deposits([...accounts.keys()] as Address[], first, last)) {
    const account = accounts.get(depositor)
    if (account === undefined) continue
    failpoint('before_credit')
    if (await creditGatewayDeposit(database, { account, chainId: chain.chainId, ...deposit })) credited += 1
    failpoint('after_credit')
  }
  return credited
}

/** Brings what has arrived into the gateway, account by account; the relayer pays the gas. Returns how many were sent. */
export async function sweepDeposits(tools: DepositTools): Promise<number> {
  for (const account of await findAccountsToSweep(tools.database, accountsMax)) {
    const balance = await tools.chain.usdcBalance(account.address as Address)
    if (balance >= tools.sweepMin) await planSweep(tools.database, account, randomUUID(), balance)
  }
  tools.failpoint('after_sweep_planned')
  const sweeps = await findOpenSweeps(tools.database)
  for (const sweep of sweeps) await advanceSweep(tools, sweep)
  return sweeps.length
}

/** What no log has told is found by its balance: a node that dropped logs, coins sent in another way. */
export async function reconcileArrivals(tools: DepositTools): Promise<void> {
  const open = new Set((await findOpenSweeps(tools.database)).map(({ accountId }) => accountId))
  for (const account of await listDepositAccounts(tools.database)) {
    if (open.has(account.id)) continue
    const balance = await tools.chain.usdcBalance(account.address as Address)
    if (balance >= tools.sweepMin) await planSweep(tools.database, account, randomUUID(), balance)
  }
}

async function advanceSweep(tools: DepositTools, sweep: Sweep): Promise<void> {
  const { database, chain } = tools
  if (sweep.state === 'planned') return sendSweep(tools, sweep)
  const outcome = await chain.outcome(sweep.transactionHash as Hex)
  if (outcome === undefined) return retrySweep(tools, sweep)
  if (outcome.ok) return endSweep(database, sweep, 'confirmed')
  tools.onAlarm('a deposit into the gateway was refused', { sweep: sweep.id, transaction: sweep.transactionHash })
  await endSweep(database, sweep, 'failed', 'reverted')
}

/** Written down before it is sent: whatever happens then, the same bytes are sent again until their fate is known. */
async function sendSweep(tools: DepositTools, sweep: Sweep): Promise<void> {
  const { database, chain, signer, terms, usdcDomain, relayer } = tools
  const message = {
    from: sweep.address as Address,
    to: terms.gatewayWallet,
    value: sweep.amount,
    ...windowOf(sweep.createdAt),
    nonce: nonceOf('deposit', sweep.accountId, terms.epoch, sweep.nonce),
  }
  const { accountId, nonce: sequence } = sweep
  const request = { account: accountId, epoch: terms.epoch, sequence, domain: usdcDomain, message }
  const signature = await signer.signDeposit({ operation: 'deposit', ...request })
  const fee = feeHeadroom * (await chain.gasPrice())
  const signed = await signDepositTransaction({
    relayerKey: relayer.key,
    relayerNonce: await chain.transactionCount(relayer.address),
    maxFeePerGas: fee > minFeeWei ? fee : minFeeWei,
    chainId: chain.chainId,
    usdc: terms.usdcAddress,
    gatewayWallet: terms.gatewayWallet,
    message,
    signature,
  })
  await markSweepSent(database, sweep, signed, keccak256(signed))
  tools.failpoint('before_sweep_broadcast')
  await chain.broadcast(signed)
  tools.failpoint('after_sweep_broadcast')
  const outcome = await chain.outcome(keccak256(signed))
  if (outcome?.ok) await endSweep(database, sweep, 'confirmed')
}

/** Sent and in no block: the same bytes again, or, when another transaction of the relayer took its place, a new one. */
async function retrySweep(tools: DepositTools, sweep: Sweep): Promise<void> {
  const { chain, relayer } = tools
  const signed: Hex = `0x${sweep.signedTransaction!.toString('hex')}`
  const place = parseTransaction(signed).nonce ?? 0
  const isTaken = (await chain.transactionCount(relayer.address)) > place
  if (!isTaken) return chain.broadcast(signed)
  // Counted before it was looked for: it is in a block by now, or will never be.
  if ((await chain.outcome(sweep.transactionHash as Hex)) !== undefined) return
  // The authorization has one nonce at the token: in a new transaction it still moves the money once.
  await sendSweep(tools, sweep)
}
