import { type Address, decodeEventLog, type Hash, type Hex, toEventSelector } from 'viem'
import { settlementGatewayAbi } from '../../contracts/generated/SettlementGateway.abi.ts'
import { ChainNodeError, type RawLog } from '../../src/chain/node.ts'
import { lowerCase } from '../terms.ts'

/** The position of an event in the chain. */
export type EventPlace = {
  readonly block: bigint
  readonly index: number
  readonly blockHash: Hash
  readonly transactionHash: Hash
}

/** The contract's events about one account's balance. */
export type BalanceEvent = EventPlace & { readonly account: Address } & (
    | { readonly kind: 'Deposited'; readonly value: bigint }
    /** By a batch: a payment (negative), or the credit of a payee. */
    | { readonly kind: 'BalanceChanged'; readonly value: bigint }
    | { readonly kind: 'WithdrawalInitiated'; readonly value: bigint; readonly withdrawalBlock: bigint }
    | { readonly kind: 'WithdrawalCompleted'; readonly value: bigint }
    | {
        readonly kind: 'InstantWithdrawal'
        readonly value: bigint
        readonly fromAvailable: bigint
        readonly fromWithdrawing: bigint
        readonly specHash: Hash
      }
  )

export type AuthorizationName = { readonly payer: Address; readonly nonce: Hex }
export type SkippedAuthorization = AuthorizationName & { readonly reason: SkipReason }

/** A batch as the chain settled it: each of its rows is in one of the two lists. */
export type SettledBatch = EventPlace & {
  readonly kind: 'BatchSettled'
  readonly batchId: bigint
  readonly settledCount: bigint
  readonly settledValue: bigint
  readonly used: readonly AuthorizationName[]
  readonly skipped: readonly SkippedAuthorization[]
}

export type GatewayEvent = BalanceEvent | SettledBatch

/** The contract's skip reasons by number, with Circle's names where Circle has one. */
const skipReasons = [
  'none',
  'zero_value',
  'self_transfer',
  'invalid_payee',
  'authorization_not_yet_valid',
  'authorization_expired',
  'nonce_already_used',
  'invalid_signature',
  'insufficient_balance',
] as const

export type SkipReason = (typeof skipReasons)[number]

/**
 * Parses logs, which must be complete for their transactions and in order. A batch states how many rows it had and their total
 * value: if logs of it are missing, all logs are rejected, and nothing is applied partially.
 */
export function readEvents(logs: readonly RawLog[]): readonly GatewayEvent[] {
  const events: GatewayEvent[] = []
  let open = openBatch(undefined)
  for (const log of logs) {
    if (log.transactionHash !== open.transactionHash) {
      requireClosed(open)
      open = openBatch(log.transactionHash)
    }
    const { transactionHash, block, index, blockHash } = log
    const place: EventPlace = { transactionHash, block, index, blockHash }
    const decoded = decode(log)
    switch (decoded.eventName) {
      case 'PaymentSettled': {
        const { payer, nonce, value } = decoded.args
        open.used.push({ payer: lowerCase(payer), nonce })
        open.paid += value
        events.push({ ...place, kind: 'BalanceChanged', ...accountOf(payer), value: -value })
        break
      }
      case 'AuthorizationSkipped':
        open.skipped.push({
          payer: lowerCase(decoded.args.authorizer),
          nonce: decoded.args.nonce,
          reason: skipReasons[decoded.args.reason] ?? 'none',
        })
        break
      case 'BatchSettled':
        events.push({ ...place, kind: 'BatchSettled', ...closeBatch(open, decoded.args) })
        open = openBatch(transactionHash)
        break
      case 'PayeeCredited': {
        const { payee, value } = decoded.args
        open.credited += value
        events.push({ ...place, kind: 'BalanceChanged', ...accountOf(payee), value })
        break
      }
      case 'Deposited':
        events.push({ ...place, kind: 'Deposited', ...accountOf(decoded.args.depositor), value: decoded.args.value })
        break
      default: {
        const event = readWithdrawal(place, decoded)
        if (event !== undefined) events.push(event)
      }
    }
  }
  requireClosed(open)
  return events
}

function readWithdrawal(place: EventPlace, decoded: Decoded): BalanceEvent | undefined {
  switch (decoded.eventName) {
    case 'WithdrawalInitiated': {
      const { depositor, value, withdrawalBlock } = decoded.args
      return { ...place, kind: 'WithdrawalInitiated', ...accountOf(depositor), value, withdrawalBlock }
    }
    case 'WithdrawalCompleted':
      return {
        ...place,
        kind: 'WithdrawalCompleted',
        ...accountOf(decoded.args.depositor),
        value: decoded.args.value,
      }
    case 'InstantWithdrawal': {
      const { depositor, transferSpecHash: specHash, value, fromAvailable, fromWithdrawing } = decoded.args
      const parts = { value, fromAvailable, fromWithdrawing, specHash }
      return { ...place, kind: 'InstantWithdrawal', ...accountOf(depositor), ...parts }
    }
    // Role and pause events move no money.
    default:
      return undefined
  }
}

type Decoded = ReturnType<typeof decode>

// One ABI per event: given the whole ABI, viem hashes the signatures of all events for each log.
const eventAbis = new Map(
  settlementGatewayAbi.flatMap((item) => (item.type === 'event' ? [[toEventSelector(item), [item]] as const] : [])),
)

function decode({ topics, data }: RawLog) {
  try {
    const [signature, ...rest] = topics
    const abi = eventAbis.get(signature!) as typeof settlementGatewayAbi | undefined
    return decodeEventLog({ abi: abi!, topics: [signature!, ...rest], data, strict: true })
  } catch (error) {
    throw new ChainNodeError('a log could not be decoded as an event of the contract', error)
  }
}

type OpenBatch = {
  readonly transactionHash: Hash | undefined
  readonly used: AuthorizationName[]
  readonly skipped: SkippedAuthorization[]
  /** Paid by payers, and credited to payees. */
  paid: bigint
  credited: bigint
}

function openBatch(transactionHash: Hash | undefined): OpenBatch {
  return { transactionHash, used: [], skipped: [], paid: 0n, credited: 0n }
}

type BatchArguments = {
  readonly batchId: bigint
  readonly authorizationCount: bigint
  readonly settledCount: bigint
  readonly settledValue: bigint
}

function closeBatch(open: OpenBatch, args: BatchArguments) {
  const { used, skipped, paid, credited } = open
  const { batchId, authorizationCount, settledCount, settledValue } = args
  const isWhole =
    BigInt(used.length) === settledCount &&
    BigInt(used.length + skipped.length) === authorizationCount &&
    paid === settledValue &&
    credited === settledValue
  if (!isWhole) throw new LogsMissingError(`logs of batch ${batchId} are missing`)
  return { batchId, settledCount, settledValue, used, skipped }
}

function requireClosed({ used, skipped, credited, transactionHash }: OpenBatch): void {
  if (used.length + skipped.length === 0 && credited === 0n) return
  throw new LogsMissingError(`the final log of a batch in transaction ${transactionHash} is missing`)
}

function accountOf(address: Address): { readonly account: Address } {
  return { account: lowerCase(address) }
}

export class LogsMissingError extends ChainNodeError {}
