import { randomUUID } from 'node:crypto'
import { type Hex, keccak256, parseTransaction } from 'viem'
import type { Database } from '../db/database.ts'
import type { SettlementFailpoint } from '../failpoints.ts'
import { moveCursor, readCursor } from '../ledger/chain-cursors.ts'
import {
  assignAddress,
  type DepositAccount,
  findAccountsWithoutAddress,
  listDepositAccounts,
} from '../ledger/deposit-addresses.ts'
import {
  creditGatewayDeposit,
  findFirstCreditedBlock,
  forgetLookBacks,
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
} from '../ledger/sweeps.ts'
import type { Address } from '../signer/address.ts'
import { nonceOf } from '../signer/nonce.ts'
import type { Signer } from '../signer/signer.ts'
import { windowOf } from '../signer/signing-terms.ts'
import type { PaymentTerms } from './authorization.ts'
import { type Chain, signDepositTransaction } from './chain.ts'
import { comparableBlock } from './comparable-block.ts'
import type { Rail } from './rail.ts'

export type DepositParts = {
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

/** How far the chain has been read, by name: transfers to addresses, and what the gateway's contract has booked. */
export const depositCursors = ['arrivals', 'deposits'] as const

const blocksMax = 1_000n
const accountsMax = 100
// A comparison runs every minute: what was missed is young, mostly. Blocks before these are searched a few chunks at a time.
const recentBlocksMax = 20_000n
const lookBackChunksMax = 20
const windowAgeMsMax = 7 * 24 * 60 * 60 * 1000
const feeHeadroom = 2n
const minFeeWei = 20_000_000_000n

/** Gives every account the address that its key has. */
export async function assignAddresses({ database, signer }: DepositParts): Promise<number> {
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
export async function watchDeposits(parts: DepositParts): Promise<number> {
  // The chain's head first, then the addresses: one that is told in between has nothing in the blocks that are read.
  const head = await parts.chain.finalBlock()
  let listed: Promise<Accounts> | undefined
  const accounts = () => (listed ??= listAccounts(parts.database))
  await follow(parts, 'arrivals', head, async (first, last) => noteArrivals(parts, await accounts(), first, last))
  const counted = await parts.rail.processedHeight()
  let credited = 0
  await follow(parts, 'deposits', head < counted ? head : counted, async (first, last) => {
    credited += (await creditDeposits(parts, await accounts(), first, last)).length
  })
  return credited
}

/** In chunks, each remembered when it is done: a crash repeats one chunk, and every log counts once. */
async function follow(
  { database }: DepositParts,
  cursor: (typeof depositCursors)[number],
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

/** There may be many of them: they are asked for when there is a block to read, not every time somebody looks for one. */
async function listAccounts(database: Database): Promise<Accounts> {
  return new Map((await listDepositAccounts(database)).map((account) => [account.address, account]))
}

async function noteArrivals({ database, chain }: DepositParts, accounts: Accounts, first: bigint, last: bigint) {
  for (const { to, ...arrival } of await chain.arrivals([...accounts.keys()] as Address[], first, last)) {
    const account = accounts.get(to)
    if (account !== undefined && arrival.amount > 0n) await recordArrival(database, { account, ...arrival })
  }
}

async function creditDeposits(
  { database, chain, failpoint }: DepositParts,
  accounts: Accounts,
  first: bigint,
  last: bigint,
): Promise<readonly bigint[]> {
  const credited: bigint[] = []
  for (const { depositor, ...deposit } of await chain.deposits([...accounts.keys()] as Address[], first, last)) {
    const account = accounts.get(depositor)
    if (account === undefined) continue
    failpoint('before_credit')
    if (await creditGatewayDeposit(database, { account, chainId: chain.chainId, ...deposit }))
      credited.push(deposit.amount)
    failpoint('after_credit')
  }
  return credited
}

/** Brings what has arrived into the gateway, account by account; the relayer pays the gas. Returns how many were sent. */
export async function sweepDeposits(parts: DepositParts): Promise<number> {
  for (const account of await findAccountsToSweep(parts.database, accountsMax)) {
    const balance = await parts.chain.usdcBalance(account.address as Address)
    if (balance < parts.sweepMin) continue
    await planSweep(parts.database, account, randomUUID(), balance)
    parts.failpoint('after_sweep_planned')
  }
  const sweeps = await findOpenSweeps(parts.database)
  for (const sweep of sweeps) {
    // One that cannot move does not hold up its neighbours.
    await advanceSweep(parts, sweep).catch((error: unknown) => {
      parts.onAlarm('a deposit is waiting', { sweep: sweep.id, state: sweep.state, err: error })
    })
  }
  return sweeps.length
}

/** What no log has told is found by its balance: a node that dropped logs, coins sent in another way. */
export async function reconcileArrivals(parts: DepositParts): Promise<void> {
  const open = new Set((await findOpenSweeps(parts.database)).map(({ accountId }) => accountId))
  const accounts = (await listDepositAccounts(parts.database)).filter(({ id }) => !open.has(id))
  const block = await comparableBlock(parts.database, parts.chain)
  const balances = await parts.chain.usdcBalances(
    accounts.map(({ address }) => address as Address),
    block,
  )
  for (const [index, account] of accounts.entries()) {
    if (balances[index]! < parts.sweepMin) continue
    await planSweep(parts.database, account, randomUUID(), balances[index]!)
  }
}

/**
 * The same for what the gateway's contract has booked. Where it has more for an account than the books can explain, the
 * logs are read once more for that account alone: those of late at once, and when they do not explain it, all before them, a part
 * in each turn. Then a person is told. Returns how many deposits had been missed.
 */
export async function reconcileDeposits(parts: DepositParts): Promise<number> {
  const { database, chain } = parts
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
    missed += recent.found
    if (recent.surplus <= 0n) continue
    open.push(account)
    const before = await searchBefore(parts, account, recent, chunks)
    missed += before.found
    chunks -= before.chunks
  }
  await forgetLookBacks(database, open)
  if (missed > 0) parts.onAlarm('the chain had deposits that its logs had not told', { missed })
  return missed
}

type Search = { readonly found: number; readonly surplus: bigint; readonly from: bigint }

/** What is left of the surplus then, and the first block that was searched. */
async function searchRecent(parts: DepositParts, account: DepositAccount, surplus: bigint): Promise<Search> {
  const address = account.address as Address
  const [head, counted] = [await parts.chain.finalBlock(), await parts.rail.processedHeight()]
  const last = head < counted ? head : counted
  const from = last > recentBlocksMax ? last - recentBlocksMax : 0n
  const credited: bigint[] = []
  for (let first = from; first <= last; first += blocksMax) {
    const end = first + blocksMax - 1n < last ? first + blocksMax - 1n : last
    credited.push(...(await creditDeposits(parts, new Map([[address, account]]), first, end)))
  }
  // What the gateway has not counted yet is no secret: it is credited when it has. A gateway that is far behind explains it all.
  if (head - last > blocksMax) return { found: credited.length, surplus: 0n, from }
  const coming = head > last ? await parts.chain.deposits([address], last + 1n, head) : []
  const explained = sum(credited) + sum(coming.map(({ amount }) => amount))
  return { found: credited.length, surplus: surplus - explained, from }
}

/**
 * From there back to where the service's first deposit was credited, in as many turns as it takes. Seen for the first time a surplus
 * may be a matter of two looks at two moments: seen again it is one, and a person is told, once.
 */
async function searchBefore(
  parts: DepositParts,
  account: DepositAccount,
  { surplus, from }: Search,
  chunksMax: number,
): Promise<{ readonly found: number; readonly chunks: number }> {
  const { database, onAlarm } = parts
  const { address, id } = account
  const known = await readLookBack(database, account)
  if (known === undefined) {
    await noteLookBack(database, account, unsearched)
    return { found: 0, chunks: 0 }
  }
  if (known === unsearched) {
    const atomic = surplus.toString()
    onAlarm('the gateway has more for an account than its deposits explain', { account: id, address, atomic })
  }
  const floor = await findFirstCreditedBlock(database)
  const credited: bigint[] = []
  let [next, chunks] = [known === unsearched || known > from ? from : known, 0]
  while (next > floor && chunks < chunksMax && sum(credited) < surplus) {
    const first = next - blocksMax > floor ? next - blocksMax : floor
    credited.push(...(await creditDeposits(parts, new Map([[address, account]]), first, next - 1n)))
    next = first
    chunks += 1
  }
  await noteLookBack(database, account, next)
  return { found: credited.length, chunks }
}

/** Of a surplus that was seen once. */
const unsearched = -1n

function sum(amounts: readonly bigint[]): bigint {
  return amounts.reduce((total, amount) => total + amount, 0n)
}

async function advanceSweep(parts: DepositParts, sweep: Sweep): Promise<void> {
  const { database, chain } = parts
  if (sweep.state === 'planned') return sendSweep(parts, sweep)
  const outcome = await chain.outcome(sweep.transactionHash as Hex)
  if (outcome === undefined) return retrySweep(parts, sweep)
  if (outcome.ok) return endSweep(database, sweep, 'confirmed')
  await failSweep(parts, sweep)
}

/** The money stays where it arrived, and a person is told. The next try waits, the longer the more have failed. */
async function failSweep(parts: DepositParts, sweep: Sweep): Promise<void> {
  const { database, onAlarm } = parts
  if (await isDone(parts, sweep)) return endSweep(database, sweep, 'credited')
  const reason = (await isNonceUsed(parts, sweep)) ? nonceUsed : 'reverted'
  const { id, accountId: account, address, transactionHash: transaction } = sweep
  onAlarm('a deposit into the gateway was refused', { sweep: id, account, address, transaction, reason })
  await endSweep(database, sweep, 'failed', reason)
}

/**
 * Whether the money is in the gateway by another transaction, an earlier one of ours or anybody's: its log credits it. A nonce
 * that is used while the money is still there was used by a sweep that these books have forgotten: they are an older copy.
 */
async function isDone(parts: DepositParts, sweep: Sweep): Promise<boolean> {
  return (await isNonceUsed(parts, sweep)) && (await parts.chain.usdcBalance(sweep.address as Address)) < sweep.amount
}

function isNonceUsed({ chain, terms }: DepositParts, { address, accountId, nonce }: Sweep): Promise<boolean> {
  return chain.isAuthorizationUsed(address as Address, nonceOf('deposit', accountId, terms.epoch, nonce))
}

/**
 * Written down before it is sent: whatever happens then, the same bytes are sent again until their fate is known. What the
 * contract would refuse is not sent: the relayer pays for that too.
 */
async function sendSweep(parts: DepositParts, sweep: Sweep): Promise<void> {
  const { database, chain, signer, terms, usdcDomain, relayer } = parts
  const { accountId, nonce: sequence, createdAt } = sweep
  const hasWaited = Date.now() - createdAt.getTime() > windowAgeMsMax
  const message = {
    from: sweep.address as Address,
    to: terms.gatewayWallet,
    value: sweep.amount,
    ...windowOf(hasWaited ? new Date() : createdAt),
    nonce: nonceOf('deposit', accountId, terms.epoch, sequence),
  }
  const request = { account: accountId, epoch: terms.epoch, sequence, domain: usdcDomain, message }
  const signature = await signer.signDeposit({ operation: 'deposit', ...request })
  if (!(await chain.canDeposit(relayer.address, { message, signature }))) return failSweep(parts, sweep)
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
  await broadcast(parts, sweep, signed)
}

async function broadcast({ database, chain, failpoint }: DepositParts, sweep: Sweep, signed: Hex): Promise<void> {
  failpoint('before_sweep_broadcast')
  await chain.broadcast(signed)
  failpoint('after_sweep_broadcast')
  const outcome = await chain.outcome(keccak256(signed))
  if (outcome?.ok) await endSweep(database, sweep, 'confirmed')
}

/**
 * Sent and in no block: the same bytes again. A new transaction when another one took its place at the relayer, or when it
 * offers too little for gas by now: the authorization in it has one nonce at the token, and moves the money once.
 */
async function retrySweep(parts: DepositParts, sweep: Sweep): Promise<void> {
  const { database, chain, relayer } = parts
  const signed: Hex = `0x${sweep.signedTransaction!.toString('hex')}`
  const { nonce: place = 0, maxFeePerGas = 0n } = parseTransaction(signed)
  const isTaken = (await chain.transactionCount(relayer.address)) > place
  if (!isTaken && (await chain.gasPrice()) <= maxFeePerGas) return broadcast(parts, sweep, signed)
  // Counted before it was looked for: it is in a block by now, or will never be.
  if ((await chain.outcome(sweep.transactionHash as Hex)) !== undefined) return
  if (await isDone(parts, sweep)) return endSweep(database, sweep, 'credited')
  await sendSweep(parts, sweep)
}
