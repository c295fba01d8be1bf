// What the ledger must be, in plain numbers: one account with one key. Written by the rules of docs/operations/, without SQL, so that
// src/ledger/holds.model.test.ts can compare the ledger with it after every step.

/** The settings that the model knows. `entriesMax` and `paymentMax` are small, so that payments are cut by either. */
export const rules = {
  inFlightCap: 10_000n,
  unsettledCap: 60_000n,
  withdrawalMin: 100n,
  withdrawalFeeMax: 40n,
  entriesMax: 12,
  paymentMax: 6_000n,
  refundsMax: 5,
} as const

export type Model = {
  gateway: bigint
  credit: bigint
  /** What the key has spent. */
  spent: bigint
  limit: bigint | undefined
  charged: bigint
  givenBack: bigint
  withdrawn: bigint
  isClosed: boolean
  /** Whether a charge waits for a payment. */
  isUnpaid: boolean
  refunds: number
  readonly open: Map<number, OpenRequest>
  readonly ended: EndedRequest[]
  /** The account's entries: what was charged, and below 0 what was given back. */
  readonly entries: bigint[]
  readonly payments: ModelPayment[]
  readonly withdrawals: ModelWithdrawal[]
  /** What the gateway's contract has of the account. */
  onChain: bigint
  nextRequest: number
}

export type OpenRequest = {
  readonly quote: bigint
  readonly fromCredit: bigint
  extended: bigint
  checkpoint: bigint | undefined
  searches: number
}

export type EndedRequest = {
  readonly number: number
  readonly charged: bigint
  readonly isCancelled: boolean
  given: bigint
  isRefunded: boolean
}

export type ModelPayment = {
  readonly first: number
  readonly last: number
  readonly value: bigint
  state: 'submitted' | 'received' | 'batched' | 'unknown' | 'completed' | 'failed'
  /** Failed less than ten seconds ago. */
  isRecent: boolean
}

export type ModelWithdrawal = {
  readonly id: string
  readonly amount: bigint
  readonly fromCredit: bigint
  /** Everything up to this entry is paid before it is sent. */
  readonly afterEntry: number
  state: 'requested' | 'sent' | 'confirmed' | 'failed'
}

export function newModel(deposited: bigint): Model {
  return {
    gateway: deposited,
    credit: 0n,
    spent: 0n,
    limit: undefined,
    charged: 0n,
    givenBack: 0n,
    withdrawn: 0n,
    isClosed: false,
    isUnpaid: false,
    refunds: 0,
    open: new Map(),
    ended: [],
    entries: [],
    payments: [],
    withdrawals: [],
    onChain: deposited,
    nextRequest: 0,
  }
}

const sum = (amounts: readonly bigint[]) => amounts.reduce((total, amount) => total + amount, 0n)
const least = (...amounts: readonly bigint[]) => amounts.reduce((a, b) => (b < a ? b : a))
const isFinal = ({ state }: ModelPayment) => state === 'completed' || state === 'failed'

export const held = (model: Model) => sum([...model.open.values()].map(({ quote }) => quote))
const extended = (model: Model) => sum([...model.open.values()].map((request) => request.extended))
const inFlight = (model: Model) => held(model) + extended(model)
export const spendable = (model: Model) => model.gateway + model.credit - extended(model)
export const paid = (model: Model) =>
  sum(model.payments.filter(({ state }) => state === 'completed').map(({ value }) => value))
export const covered = (model: Model) =>
  sum(model.payments.filter(({ state }) => state !== 'failed').map(({ value }) => value))
export const coveredEntry = (model: Model) => model.payments.findLast(({ state }) => state !== 'failed')?.last ?? 0
export const unsettled = (model: Model) => model.charged - model.givenBack - paid(model)
export const openPayment = (model: Model) => model.payments.find((payment) => !isFinal(payment))
export const openWithdrawals = (model: Model) =>
  model.withdrawals.filter(({ state }) => state === 'requested' || state === 'sent')

/** The decision on a hold, and its effect. */
export function expectPlace(model: Model, quote: bigint): string {
  if (quote > rules.inFlightCap) return 'quote_exceeds_cap'
  const refusal = refuseMore(model, quote)
  if (refusal !== undefined) return refusal
  if (unsettled(model) > rules.unsettledCap) return 'settlement_delayed'
  const fromCredit = model.credit < quote ? model.credit : quote
  model.credit -= fromCredit
  model.gateway -= quote - fromCredit
  model.open.set(model.nextRequest, { quote, fromCredit, extended: 0n, checkpoint: undefined, searches: 0 })
  return 'held'
}

export function expectExtension(model: Model, request: number, total: bigint): string {
  const open = model.open.get(request)!
  const more = total - open.extended
  if (more <= 0n) return 'extended'
  const refusal = refuseMore(model, more)
  if (refusal !== undefined) return refusal
  open.extended = total
  return 'extended'
}

function refuseMore(model: Model, amount: bigint): string | undefined {
  if (model.limit !== undefined && model.spent + inFlight(model) + amount > model.limit) return 'key_limit_exceeded'
  if (amount > spendable(model)) return 'insufficient_balance'
  if (inFlight(model) + amount > rules.inFlightCap) return 'in_flight_cap'
  return undefined
}

/** `charged` undefined: it is voided. */
export function expectEnd(model: Model, number: number, charged: bigint | undefined, isCancelled = false): void {
  const { quote, fromCredit } = model.open.get(number)!
  model.open.delete(number)
  model.entries.push(charged ?? 0n)
  if (charged === undefined) {
    model.gateway += quote - fromCredit
    model.credit += fromCredit
    return
  }
  model.credit += quote - charged
  model.spent += charged
  model.charged += charged
  if (charged > 0n) model.isUnpaid = true
  model.ended.push({ number, charged, isCancelled, given: 0n, isRefunded: false })
}

/** Gives back, or below 0 takes back: `amount` of the account, or of one request's charge. */
export function expectAdjustment(model: Model, amount: bigint, request: EndedRequest | undefined): string {
  const ofAccount = amount > 0n ? model.charged - model.givenBack : least(model.givenBack, spendable(model))
  const ofRequest = request && (amount > 0n ? request.charged - request.given : request.given)
  const room = ofRequest === undefined ? ofAccount : least(ofAccount, ofRequest)
  if ((amount > 0n ? amount : -amount) > room) return 'exceeds_room'
  giveBack(model, amount, request)
  if (amount < 0n) model.isUnpaid = true
  return 'made'
}

/** Refunds an attempt that was cancelled, after a retry of it was charged. Returns how much. */
export function expectRefund(model: Model, attempt: EndedRequest, charged: bigint): bigint {
  if (attempt.isRefunded || !attempt.isCancelled) return 0n
  const back = least(charged, model.charged - model.givenBack, attempt.charged - attempt.given)
  if (back <= 0n) return 0n
  giveBack(model, back, attempt)
  model.spent -= back
  model.refunds += 1
  attempt.isRefunded = true
  return back
}

function giveBack(model: Model, amount: bigint, request: EndedRequest | undefined): void {
  model.credit += amount
  model.givenBack += amount
  model.entries.push(-amount)
  if (request !== undefined) request.given += amount
}

/** Which of the rules for due payments are met, whatever the clock says. */
export type DueBy = { readonly min: bigint | undefined; readonly isLate: boolean; readonly cap: bigint }

/** Whether the account is due; `forced` when also a sum that is not positive is paid. */
export function expectDue(model: Model, by: DueBy): 'due' | 'forced' | undefined {
  const unpaid = model.entries.length - coveredEntry(model)
  const isCandidate = model.isUnpaid || model.withdrawals.some(({ state }) => state === 'requested')
  const newest = model.payments.at(-1)
  if (!isCandidate || unpaid === 0 || openPayment(model) !== undefined || newest?.isRecent === true) return undefined
  if (
    model.isClosed ||
    model.withdrawals.some((one) => one.state === 'requested' && one.afterEntry > coveredEntry(model))
  )
    return 'forced'
  if (unpaid >= rules.entriesMax) return 'due'
  const net = model.charged - model.givenBack - covered(model)
  const isDue = net >= by.cap / 2n || by.isLate || (by.min !== undefined && net >= by.min)
  return net > 0n && isDue ? 'due' : undefined
}

/** The next payment, over the entries that none covers. False when there is none to make. */
export function expectPayment(model: Model, isForced: boolean): boolean {
  const first = coveredEntry(model) + 1
  const full = first - 1 + rules.entriesMax
  let last = Math.min(model.entries.length, full)
  if (last < first || openPayment(model) !== undefined) return false
  while (last > first && sum(model.entries.slice(first - 1, last)) > rules.paymentMax) last -= 1
  const value = sum(model.entries.slice(first - 1, last))
  if (value <= 0n && last === model.entries.length && last < full && !isForced) return false
  model.payments.push({ first, last, value, state: 'submitted', isRecent: false })
  if (last === model.entries.length) model.isUnpaid = false
  return true
}

/** What the gateway says of the payment that is under way. */
export function expectNews(model: Model, payment: ModelPayment, state: ModelPayment['state']): void {
  payment.state = state
  if (state === 'completed') model.onChain -= payment.value
  if (state !== 'failed') return
  payment.isRecent = true
  model.isUnpaid = true
}

/** The decision on a withdrawal, and its effect. */
export function expectWithdrawal(model: Model, id: string, amount: bigint): string {
  const isSmall = amount < rules.withdrawalMin
  if (amount > spendable(model)) return 'WithdrawalTooLargeError'
  if (amount <= rules.withdrawalFeeMax) return 'WithdrawalBelowFeeError'
  if (isSmall && amount < spendable(model)) return 'WithdrawalBelowMinError'
  if (openWithdrawals(model).length >= 3) return 'TooManyWithdrawalsError'
  if (isSmall && model.withdrawals.some((one) => one.amount < rules.withdrawalMin && one.state !== 'failed'))
    return 'SmallWithdrawalTooSoonError'
  const fromCredit = amount > model.gateway ? amount - model.gateway : 0n
  model.gateway -= amount - fromCredit
  model.credit -= fromCredit
  model.withdrawn += amount
  model.withdrawals.push({ id, amount, fromCredit, afterEntry: model.entries.length, state: 'requested' })
  return 'requested'
}

/** Whether everything that was charged before the withdrawal is paid. */
export function expectSettled(model: Model, { afterEntry }: ModelWithdrawal): boolean {
  const isCovered = coveredEntry(model) >= afterEntry || model.charged - model.givenBack === covered(model)
  const open = openPayment(model)
  return isCovered && (open === undefined || open.first > afterEntry)
}

/** A withdrawal that is sent must be covered on chain, together with those that were sent before and are not paid yet. */
export function isCoveredOnChain(model: Model): boolean {
  return model.onChain >= sum(model.withdrawals.filter(({ state }) => state === 'sent').map(({ amount }) => amount))
}

export function expectPaidOut(model: Model, withdrawal: ModelWithdrawal, fee: bigint): void {
  const back = rules.withdrawalFeeMax - fee
  withdrawal.state = 'confirmed'
  model.gateway += back
  model.withdrawn -= back
  model.onChain -= withdrawal.amount - back
}

export function expectReturned(model: Model, withdrawal: ModelWithdrawal): void {
  withdrawal.state = 'failed'
  model.gateway += withdrawal.amount - withdrawal.fromCredit
  model.credit += withdrawal.fromCredit
  model.withdrawn -= withdrawal.amount
}

/** Whether the account can be closed; then it is. */
export function expectClosing(model: Model): boolean {
  if (model.open.size > 0 || openWithdrawals(model).length > 0) return false
  if (spendable(model) > rules.withdrawalFeeMax) return false
  model.isClosed = true
  model.isUnpaid = model.entries.length > coveredEntry(model)
  return true
}

/** The equation that solvency checks: the chain has what the ledger owes the account. */
export function owedOnChain(model: Model): bigint {
  const leaving = sum(openWithdrawals(model).map(({ amount }) => amount))
  return model.gateway + model.credit + held(model) + unsettled(model) + leaving
}
