import { randomUUID } from 'node:crypto'
import { type Hex, parseTransaction, recoverTransactionAddress, type TransactionSerialized } from 'viem'
import {
  type CallFate,
  CallPostponedError,
  type SignedTransaction,
  type TransactionSender,
  type Version,
} from '../chain/lands-once.ts'
import { blockRanges, blocksMax, CallRevertsError } from '../chain/node.ts'
import type { Database } from '../db/database.ts'
import { confirmCursors, depositCursors, moveCursor, readCursor, readCursors } from '../ledger/chain-cursors.ts'
import {
  assignAddress,
  type DepositAccount,
  findAccountsWithoutAddress,
  listDepositAccounts,
} from '../ledger/deposit-addresses.ts'
import {
  creditGatewayDeposit,
  deleteLookBacks,
  findFirstCreditedBlock,
  listMostOnChain,
  noteLookBack,
  readLookBack,
  recordArrival,
} from '../ledger/deposits.ts'
import {
  endSweep,
  findAccountsToSweep,
  findOpenSweeps,
  markSweepSent,
  nonceUsed,
  planSweep,
  type Sweep,
  smallSweepMax,
} from '../ledger/sweeps.ts'
import type { SettlementFailpoint } from '../process/failpoints.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { isWindowUsable, windowOf } from '../signer/signing-terms.ts'
import type { PaymentTerms } from './authorization.ts'
import { type Chain, type ChainArrival, type ChainDeposit, depositCall } from './chain.ts'
import type { GatewayClient } from './gateway-client.ts'
import { comparableBlock } from './solvency.ts'

export type DepositParts = {
  readonly database: Database
  readonly signer: Signer
  readonly chain: Chain
  readonly gatewayClient: GatewayClient
  readonly terms: PaymentTerms
  /** The token's EIP-712 domain, under which deposits are signed. */
  readonly usdcDomain: Hex
  /** Sends from the relayer, which pays the gas. */
  readonly sender: TransactionSender
  /** Smaller amounts wait until they add up to it: each sweep costs gas. */
  readonly sweepMin: bigint
  /** Whether a block is mined only for a transaction, as by the sandbox: then a head that does not move is normal. */
  readonly minesOnDemand?: boolean
  readonly failpoint: SettlementFailpoint
  readonly onAlarm: (what: string, details: object) => void
}

/** How often a cursor's time is updated without new blocks: well below the age that raises an alert. */
const confirmedMs = 10_000
const accountsMax = 100
// Bounds how long a large deposit waits behind sweeps that are already planned.
const plansMax = 20
/** The last 0.5 USDC of gas is reserved for large deposits. It is enough for some hundreds of sweeps. */
const gasReserveWei = 5n * 10n ** 17n
// The comparison runs every minute, so a missed deposit is usually recent. Older blocks are searched a few chunks per run.
const recentBlocksMax = 20_000n
const lookBackChunksMax = 20

/** Assigns deposit addresses to accounts that have none. Returns how many. */
export async function assignAddresses({ database, signer }: DepositParts): Promise<number> {
  const accounts = await findAccountsWithoutAddress(database, accountsMax)
  for (const account of accounts) {
    await assignAddress(database, { ...account, address: await signer.addressOf(account.id) })
  }
  return accounts.length
}

/**
 * Reads new blocks. Records transfers to deposit addresses, and credits deposits in the gateway's contract once the gateway itself has
 * processed them. Returns how many were credited.
 */
export async function watchDeposits(parts: DepositParts): Promise<number> {
  // The head is read before the addresses: an address assigned in between has no transfers in these blocks.
  const head = await parts.chain.finalBlockOfLogs()
  let listed: Promise<Accounts> | undefined
  const accounts = () =>
    (listed ??= listDepositAccounts(parts.database).then((list) => {
      const byAddress = new Map(list.map((account) => [account.address, account]))
      // What cannot be recorded now is found when the logs are read.
      const record = (arrival: ChainArrival) => void noteArrivals(parts, byAddress, [arrival]).catch(() => {})
      parts.chain.announceArrivals([...byAddress.keys()] as Address[], record)
      return byAddress
    }))
  const cursors = await readCursors(parts.database, depositCursors)
  const arrivals = cursors.get('arrivals') ?? -1n
  let deposits = cursors.get('deposits') ?? -1n
  await follow(parts, 'arrivals', [arrivals, head], async (first, last) => {
    const { deposits: made } = await noteMoneyIn(parts, await accounts(), first, last)
    // Nothing to credit in these blocks: they need not be read again when the gateway has processed them.
    if (made.length > 0 || deposits < first - 1n) return
    await moveCursor(parts.database, 'deposits', last)
    deposits = last
  })
  if (deposits >= head) {
    if (parts.minesOnDemand === true) await confirmCursors(parts.database, depositCursors, confirmedMs)
    return 0
  }
  const counted = await parts.gatewayClient.processedHeight()
  let credited = 0
  await follow(parts, 'deposits', [deposits, head < counted ? head : counted], async (first, last) => {
    credited += (await creditDeposits(parts, await accounts(), first, last)).length
  })
  return credited
}

/** Moves the cursor after each chunk. A crash repeats one chunk, which is safe: every log is recorded once. */
async function follow(
  { database }: DepositParts,
  cursor: (typeof depositCursors)[number],
  [known, head]: readonly [known: bigint, head: bigint],
  read: (first: bigint, last: bigint) => Promise<void>,
): Promise<void> {
  for (const [first, last] of blockRanges(known, head)) {
    await read(first, last)
    await moveCursor(database, cursor, last)
  }
}

type Accounts = ReadonlyMap<string, DepositAccount>

async function noteMoneyIn(parts: DepositParts, accounts: Accounts, first: bigint, last: bigint) {
  const found = await parts.chain.moneyIn([...accounts.keys()] as Address[], first, last)
  await noteArrivals(parts, accounts, found.arrivals)
  return found
}

async function noteArrivals({ database }: DepositParts, accounts: Accounts, arrivals: readonly ChainArrival[]) {
  for (const { to, ...arrival } of arrivals) {
    const account = accounts.get(to)
    if (account !== undefined && arrival.amount > 0n) await recordArrival(database, { account, ...arrival })
  }
}

async function creditDeposits(
  { database, chain, failpoint }: DepositParts,
  accounts: Accounts,
  first: bigint,
  last: bigint,
): Promise<readonly ChainDeposit[]> {
  const credited: ChainDeposit[] = []
  for (const deposit of await chain.deposits([...accounts.keys()] as Address[], first, last)) {
    const account = accounts.get(deposit.depositor)
    if (account === undefined) continue
    failpoint('before_credit')
    if (await creditGatewayDeposit(database, { account, chainId: chain.chainId, ...deposit })) credited.push(deposit)
    failpoint('after_credit')
  }
  return credited
}

/** Moves arrived USDC into the gateway, one sweep per account; the relayer pays the gas. Returns how many sweeps are open. */
export async function sweepDeposits(parts: DepositParts): Promise<number> {
  const accounts = await findAccountsToSweep(parts.database, parts.sweepMin, accountsMax)
  const block = await readCursor(parts.database, 'arrivals')
  if (accounts.length > 0 && block !== undefined) {
    const amountMin = await readAmountMin(parts)
    let planned = 0
    for (const account of accounts) {
      // Sorted by amount, largest first.
      if (planned === plansMax || account.amount < amountMin) break
      const [amount] = await parts.chain.usdcBalances([account.address as Address], block)
      if (amount! < amountMin) continue
      if (await planSweep(parts.database, account, { id: randomUUID(), amount: amount!, block })) planned += 1
      parts.failpoint('after_sweep_planned')
    }
  }
  const sweeps = await findOpenSweeps(parts.database)
  // One transaction at a time: they share the relayer's nonces.
  let maySend = true
  for (const sweep of sweeps) {
    try {
      if (await advanceSweep(parts, sweep, maySend)) maySend = false
    } catch (error) {
      // A sweep that fails does not delay the others, unless its transaction is pending or the relayer lacks gas.
      if (sweep.state === 'sent' || error instanceof CallPostponedError) maySend = false
      if (error instanceof CallPostponedError) continue
      parts.onAlarm('a deposit is waiting', { sweep: sweep.id, state: sweep.state, err: error })
    }
  }
  return sweeps.length
}

/** The smallest amount that is swept while gas is as scarce as now. */
async function readAmountMin({ chain, sender, sweepMin }: DepositParts): Promise<bigint> {
  const isScarce = (await chain.gasBalance(sender.address as Address)) < gasReserveWei
  return isScarce && sweepMin < smallSweepMax ? smallSweepMax : sweepMin
}

/**
 * Finds arrivals without a log by their balance: nodes drop logs, and coins can be sent without a Transfer event. Transfers are read up to
 * the block of the balances first: one that is swept before it is recorded would be shown as waiting forever.
 */
export async function reconcileArrivals(parts: DepositParts): Promise<void> {
  const { database, chain } = parts
  const open = new Set((await findOpenSweeps(database)).map(({ accountId }) => accountId))
  const block = await comparableBlock(database, chain)
  const known = (await readCursor(database, 'arrivals')) ?? -1n
  // So far behind, the transfers explain the balances.
  if (block - known > blocksMax) return
  const listed = await listDepositAccounts(database)
  const byAddress = new Map(listed.map((account) => [account.address, account]))
  await follow(parts, 'arrivals', [known, block], async (first, last) => {
    await noteMoneyIn(parts, byAddress, first, last)
  })
  const accounts = listed.filter(({ id }) => !open.has(id))
  const balances = await parts.chain.usdcBalances(
    accounts.map(({ address }) => address as Address),
    block,
  )
  const found = accounts
    .map((account, index) => ({ account, balance: balances[index]! }))
    .filter(({ balance }) => balance >= parts.sweepMin)
    .sort((one, other) => Number(other.balance - one.balance))
  if (found.length === 0) return
  const amountMin = await readAmountMin(parts)
  let small = 0
  for (const { account, balance } of found) {
    if (balance < amountMin || small === plansMax) break
    const isPlanned = await planSweep(parts.database, account, { id: randomUUID(), amount: balance, block })
    if (isPlanned && balance < smallSweepMax) small += 1
  }
}

/**
 * The same for deposits in the gateway's contract. When it has more for an account than the ledger explains, the logs are read again
 * for that account: recent blocks first, then older ones, a part in each run. A surplus that remains raises an alarm. Returns how
 * many deposits had been missed.
 */
export async function reconcileDeposits(parts: DepositParts): Promise<number> {
  const { database, chain } = parts
  // Read first: deposits above it are merely new, even if they are credited while this runs.
  const readTo = (await readCursor(database, 'deposits')) ?? -1n
  const countMissed = (credited: readonly ChainDeposit[]) => credited.filter(({ block }) => block <= readTo).length
  let [missed, chunks] = [0, lookBackChunksMax]
  const open: DepositAccount[] = []
  const accounts = await listMostOnChain(database)
  const block = await chain.finalBlock()
  const balances = await chain.gatewayBalances(
    accounts.map(({ address }) => address as Address),
    block,
  )
  for (const [index, { most, ...account }] of accounts.entries()) {
    const surplus = balances[index]! - most
    if (surplus <= 0n) continue
    const recent = await searchRecent(parts, account, surplus)
    missed += countMissed(recent.credited)
    if (recent.surplus <= 0n) continue
    open.push(account)
    const before = await searchBefore(parts, account, recent, chunks)
    missed += countMissed(before.credited)
    chunks -= before.chunks
  }
  await deleteLookBacks(database, open)
  if (missed > 0) parts.onAlarm('deposits were missing from the logs of the chain node', { missed })
  return missed
}

type Search = { readonly credited: readonly ChainDeposit[]; readonly surplus: bigint; readonly from: bigint }

/** Returns the surplus that is still unexplained, and the first block that was searched. */
async function searchRecent(parts: DepositParts, account: DepositAccount, surplus: bigint): Promise<Search> {
  const address = account.address as Address
  const [head, counted] = [await parts.chain.finalBlock(), await parts.gatewayClient.processedHeight()]
  const last = head < counted ? head : counted
  const from = last > recentBlocksMax ? last - recentBlocksMax : 0n
  const credited: ChainDeposit[] = []
  for (const [first, end] of blockRanges(from - 1n, last)) {
    credited.push(...(await creditDeposits(parts, new Map([[address, account]]), first, end)))
  }
  // Deposits that the gateway has not processed yet are credited later. A gateway that is far behind explains any surplus.
  if (head - last > blocksMax) return { credited, surplus: 0n, from }
  const coming = head > last ? await parts.chain.deposits([address], last + 1n, head) : []
  return { credited, surplus: surplus - sum(credited) - sum(coming), from }
}

/**
 * Searches older blocks, back to the service's first credited deposit, in several runs. The first sighting of a surplus is only
 * noted: it may come from two reads at different times. The second one raises an alarm, once.
 */
async function searchBefore(
  parts: DepositParts,
  account: DepositAccount,
  { surplus, from }: Search,
  chunksMax: number,
): Promise<{ readonly credited: readonly ChainDeposit[]; readonly chunks: number }> {
  const { database, onAlarm } = parts
  const { address, id } = account
  const known = await readLookBack(database, account)
  if (known === undefined) {
    await noteLookBack(database, account, unsearched)
    return { credited: [], chunks: 0 }
  }
  if (known === unsearched) {
    const atomic = surplus.toString()
    onAlarm('the gateway has more for an account than its deposits explain', { account: id, address, atomic })
  }
  const floor = await findFirstCreditedBlock(database)
  const credited: ChainDeposit[] = []
  let [next, chunks] = [known === unsearched || known > from ? from : known, 0]
  while (next > floor && chunks < chunksMax && sum(credited) < surplus) {
    const first = next - blocksMax > floor ? next - blocksMax : floor
    credited.push(...(await creditDeposits(parts, new Map([[address, account]]), first, next - 1n)))
    next = first
    chunks += 1
  }
  await noteLookBack(database, account, next)
  return { credited, chunks }
}

/** Marks a surplus that was seen once and not searched for yet. */
const unsearched = -1n

function sum(deposits: readonly ChainDeposit[]): bigint {
  return deposits.reduce((total, { amount }) => total + amount, 0n)
}

/** Returns whether a transaction of the sweep is pending afterwards. */
async function advanceSweep(parts: DepositParts, sweep: Sweep, maySend: boolean): Promise<boolean> {
  if (sweep.state === 'planned') return maySend && sendSweep(parts, sweep)
  const { state } = await trackSweep(parts, sweep)
  if (state === 'waiting' || state === 'confirmed') return true
  if (state === 'reverted') await failSweep(parts, sweep)
  else if (state === 'succeeded') await endSweep(parts.database, sweep, 'confirmed')
  else if (await isDone(parts, sweep)) await endSweep(parts.database, sweep, 'credited')
  else return maySend && sendSweep(parts, sweep)
  return false
}

/** Only the newest version of the transaction is stored. If an older one lands, `isDone` sees its effect. */
async function trackSweep({ database, chain, sender }: DepositParts, sweep: Sweep): Promise<CallFate> {
  const { to, data = '0x', gas, version } = await readVersion(sweep)
  const versions = {
    read: async () => [version],
    add: ({ raw, hash }: SignedTransaction) => markSweepSent(database, sweep, raw, hash),
  }
  return sender.pursue({ to: to!, data, gas }, versions, await chain.finalBlock())
}

async function readVersion({ signedTransaction, transactionHash, ageMs }: Sweep) {
  const raw: Hex = `0x${signedTransaction!.toString('hex')}`
  const sender = await recoverTransactionAddress({ serializedTransaction: raw as TransactionSerialized })
  const transaction = parseTransaction(raw)
  const version: Version = {
    raw,
    hash: transactionHash as Hex,
    nonce: BigInt(transaction.nonce ?? 0),
    maxFeePerGas: transaction.maxFeePerGas ?? 0n,
    sender: sender.toLowerCase() as Address,
    ageMs,
  }
  return { ...transaction, version }
}

/** The money stays at the deposit address. The next attempt backs off with the number of failures. */
async function failSweep(parts: DepositParts, sweep: Sweep): Promise<void> {
  const { database, onAlarm } = parts
  if (await isDone(parts, sweep)) return endSweep(database, sweep, 'credited')
  const reason = (await isNonceUsed(parts, sweep)) ? nonceUsed : 'reverted'
  const { id, accountId: account, address, transactionHash: transaction } = sweep
  onAlarm('a deposit into the gateway was refused', { sweep: id, account, address, transaction, reason })
  await endSweep(database, sweep, 'failed', reason)
}

/**
 * Whether another transaction has moved the money into the gateway; its log credits it. If the nonce is used but the money is still
 * at the address, the ledger was restored from a copy that does not know the sweep which used it.
 */
async function isDone(parts: DepositParts, sweep: Sweep): Promise<boolean> {
  return (await isNonceUsed(parts, sweep)) && (await parts.chain.usdcBalance(sweep.address as Address)) < sweep.amount
}

function isNonceUsed({ chain, terms }: DepositParts, { address, accountId, nonce }: Sweep): Promise<boolean> {
  return chain.isAuthorizationUsed(address as Address, nonceOf('deposit', accountId, terms.epoch, nonce))
}

/** Does not send a call that would revert: it would cost gas too. Returns whether a transaction of the sweep is pending afterwards. */
async function sendSweep(parts: DepositParts, sweep: Sweep): Promise<boolean> {
  const { database, signer, terms, usdcDomain, sender } = parts
  const { accountId, nonce: sequence, createdAt } = sweep
  const message = {
    from: sweep.address as Address,
    to: terms.gatewayWallet,
    value: sweep.amount,
    ...windowOf(isWindowUsable(createdAt) ? createdAt : new Date()),
    nonce: nonceOf('deposit', accountId, terms.epoch, sequence),
  }
  const request = { account: accountId, epoch: terms.epoch, sequence, domain: usdcDomain, message }
  const signature = await signer.sign({ operation: 'deposit', ...request })
  const call = depositCall(terms.usdcAddress, terms.gatewayWallet, { message, signature })
  const signed = await sender.sign(call).catch(unlessRefused)
  if (signed === undefined) {
    await failSweep(parts, sweep)
    return false
  }
  await markSweepSent(database, sweep, signed.raw, signed.hash)
  await sender.broadcast(signed.raw)
  const signedTransaction = Buffer.from(signed.raw.slice(2), 'hex')
  const sent: Sweep = { ...sweep, state: 'sent', signedTransaction, transactionHash: signed.hash, ageMs: 0n }
  // Where blocks are final immediately, the sweep may be done already. If the node fails here, the next run asks again.
  return advanceSweep(parts, sent, false).catch(() => true)
}

function unlessRefused(error: unknown): undefined {
  if (!(error instanceof CallRevertsError)) throw error
}
