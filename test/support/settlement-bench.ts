import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, beforeEach } from 'node:test'
import type { Database } from '../../src/db/database.ts'
import { type Account, findAccount } from '../../src/ledger/accounts.ts'
import { adjustAccount } from '../../src/ledger/adjustments.ts'
import { findViolations } from '../../src/ledger/audit.ts'
import { assignAddress } from '../../src/ledger/deposit-addresses.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import { makeDuePayments } from '../../src/ledger/payments.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { paymentTerms } from '../../src/settlement/authorization.ts'
import { confirmPayments } from '../../src/settlement/confirm.ts'
import { Funds } from '../../src/settlement/funds.ts'
import { createGatewayClient } from '../../src/settlement/gateway-client.ts'
import { rootRecovered, submitPayments } from '../../src/settlement/submit.ts'
import { advanceTransfers, type TransferParts } from '../../src/settlement/transfers/machine.ts'
import { watchWithdrawalFee } from '../../src/settlement/withdrawal-fee.ts'
import type { Address } from '../../src/signer/address.ts'
import { askCustodian, createSigner } from '../../src/signer/signer.ts'
import { atEnd, type Ending } from './at-end.ts'
import { type CircleGateway, startCircleGateway } from './circle-gateway.ts'
import { earlier } from './earlier.ts'
import { charge, hold, openLedger, openPayer } from './ledger.ts'
import { testDatabase } from './postgres.ts'
import { type CustodianChanges, createCustodian, keys, limits, terms } from './signing.ts'

/** The settlement client, with its keys in this process, before a gateway that answers as Circle's does. */
export type SettlementBench = {
  readonly database: Database
  readonly gateway: CircleGateway
  readonly holds: Holds
  readonly funds: Funds
  readonly parts: Parameters<typeof submitPayments>[0] & TransferParts & Parameters<typeof watchWithdrawalFee>[0]
  /** What a person was called for. */
  readonly alarms: string[]
  openAccount(atomic: bigint): Promise<BenchAccount>
}

export type BenchAccount = Payer & { readonly id: string; readonly address: Address }

/** A call that is not answered is given up after this. Long enough for a machine that does ten other things. */
const timeoutMs = 5_000
const roundsMax = 60

/** A bench for the tests of one file. Each begins with an honest gateway. */
export function settlementSuite(changes: CustodianChanges = {}): SettlementBench {
  let bench: SettlementBench | undefined
  let close: (() => unknown) | undefined
  before(async () => {
    bench = await openSettlementBench({ after: (undo) => void (close = undo) }, changes)
  })
  after(() => close?.())
  beforeEach(async () => {
    bench!.gateway.faults = () => undefined
    bench!.gateway.tellsFees = true
    await setFee(bench!, 0n)
    bench!.alarms.length = 0
  })
  return new Proxy({} as SettlementBench, { get: (_, name) => bench![name as keyof SettlementBench] })
}

async function openSettlementBench(t: Ending, changes: CustodianChanges): Promise<SettlementBench> {
  const [ledger, gateway] = await Promise.all([testDatabase(), startCircleGateway(t, terms)])
  atEnd(t, () => ledger.drop())
  const { database } = ledger
  const alarms: string[] = []
  const gatewayClient = createGatewayClient({ url: gateway.url, domain: terms.gatewayDomain, timeoutMs })
  atEnd(t, () => gatewayClient.close())
  const signer = createSigner({ ask: askCustodian(createCustodian(t, changes)), onFault: assert.ifError })
  const parts = {
    database,
    signer,
    gatewayClient,
    terms: paymentTerms(terms, 0),
    signingTerms: terms,
    resource: { url: 'http://penny/v1/chat/completions', description: 'Chat completion', mimeType: 'application/json' },
    feeMax: limits.withdrawalFeeMax,
    failpoint: () => {},
    onAlarm: (what: string) => void alarms.push(what),
  }
  return {
    database,
    gateway,
    holds: await openLedger(database),
    // Most tests move a few thousandths.
    funds: new Funds({ database, signer, withdrawalMin: fromAtomic(1n) }),
    parts,
    alarms,
    async openAccount(atomic) {
      const payer = await openPayer(database, atomic)
      const { address } = keys.ofAccount(payer.accountId)
      const account = { ...payer, id: payer.accountId, address }
      await assignAddress(database, account)
      gateway.deposit(address, atomic)
      return account
    },
  }
}

/** From now on the gateway keeps that of a withdrawal, and says beforehand that it may be as much again. */
export async function setFee({ gateway, parts }: SettlementBench, fee: bigint): Promise<bigint> {
  gateway.fee = fee
  gateway.feeEstimate = 2n * fee
  return watchWithdrawalFee(parts)
}

/** One request of that account, from its hold to its end. */
export async function pay({ holds }: SettlementBench, account: BenchAccount, quote: bigint, charged: bigint) {
  return holds.end(charge(await hold(holds, account, quote), charged))
}

/** Every charge is due. */
export const dueAtOnce = {
  afterMs: 0,
  min: fromAtomic(0n),
  latestMs: 0,
  cap: fromAtomic(5_000_000n),
  max: fromAtomic(limits.authorizationMax),
}

/** One round of everything that the settlement process does again and again. */
export async function settleOnce({ database, parts }: SettlementBench): Promise<void> {
  await rootRecovered(parts)
  await makeDuePayments(database, dueAtOnce, parts.terms.epoch)
  parts.failpoint('after_payment_made')
  await submitPayments(parts)
  await confirmPayments(parts, 0)
  await advanceTransfers(parts, 'withdrawal')
  await advanceTransfers(parts, 'payout')
}

/** What waits for its next try is due. */
export async function passTime({ database }: SettlementBench): Promise<void> {
  for (const table of ['payments', 'transfers']) {
    await database.query(`update ${table} set ${earlier('changed_at', "interval '61 seconds'")}`)
  }
}

/** With an honest gateway from now on: until nothing is open. */
export async function settleAll(bench: SettlementBench): Promise<void> {
  bench.gateway.faults = () => undefined
  for (let round = 0; round < roundsMax; round += 1) {
    if ((await openCount(bench)) === 0) return
    await settleOnce(bench)
    bench.gateway.batch()
    bench.gateway.payOut()
    await passTime(bench)
  }
  assert.equal(await openCount(bench), 0, 'something is still open')
}

async function openCount({ database }: SettlementBench): Promise<number> {
  const [row] = await database.query<{ open: number }>(
    `select ((select count(*) from payments where state not in ('completed', 'failed'))
             + (select count(*) from accounts where charged - given_back > covered and address is not null)
             + (select count(*) from transfers where state not in ('confirmed', 'failed')))::int as open`,
  )
  return row!.open
}

export async function accountOf({ database }: SettlementBench, { partition, id }: BenchAccount): Promise<Account> {
  return (await findAccount(database, partition, id))!
}

/** When nothing is open: the ledger balances, and the gateway has for everybody what they say, to the unit. */
export async function assertSettled(bench: SettlementBench, accounts: readonly BenchAccount[]): Promise<void> {
  const { database, gateway } = bench
  assert.deepEqual(await findViolations(database), [])
  for (const account of accounts) {
    assert.equal(gateway.balance(account.address), await ownedOf(bench, account), 'at the gateway as in the ledger')
  }
  const [sums] = await database.query<Record<'earned' | 'paid_out' | 'payout_fees' | 'withdrawn', bigint>>(
    `select (select coalesce(sum(paid), 0) from accounts)::bigint as earned,
            (select coalesce(sum(amount - fee_max), 0) from transfers where kind = 'payout' and state = 'confirmed')::bigint as paid_out,
            (select coalesce(sum(fee), 0) from transfers where kind = 'payout' and state = 'confirmed')::bigint as payout_fees,
            (select coalesce(sum(amount - fee_max), 0) from transfers where kind = 'withdrawal' and state = 'confirmed')::bigint as withdrawn`,
  )
  const { earned, paid_out, payout_fees, withdrawn } = sums!
  assert.equal(gateway.balance(terms.seller), earned - paid_out - payout_fees, 'the seller has what was paid')
  const payments = await database.query<{ gateway_id: string; value: bigint }>(
    `select gateway_id, value from payments where state = 'completed' and value <> 0`,
  )
  const transfers = [...gateway.transfers.values()].filter(({ status }) => status === 'completed')
  assert.deepEqual(
    payments.map(({ gateway_id, value }) => `${gateway_id} ${value}`).sort(),
    transfers.map(({ id, from, amount }) => `${id} ${from === terms.seller ? -amount : amount}`).sort(),
    'each payment once',
  )
  const paid = [...gateway.paid.values()].reduce((sum, amount) => sum + amount, 0n)
  assert.equal(paid, withdrawn + paid_out, 'each withdrawal once')
}

/** What the account must have at the gateway when nothing is under way: all that it has not spent, and what it has not paid yet. */
export async function ownedOf({ database }: SettlementBench, { partition, id }: BenchAccount): Promise<bigint> {
  const [row] = await database.query<{ owned: bigint }>(
    'select gateway + credit + held + charged - given_back - paid as owned from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row!.owned
}

/** Charges, less refunds and payments on chain. Negative: the seller owes it. */
export async function unsettledOf({ database }: SettlementBench, { partition, id }: BenchAccount): Promise<bigint> {
  const [row] = await database.query<{ unsettled: bigint }>(
    'select charged - given_back - paid as unsettled from accounts where partition = $1 and id = $2',
    [partition, id],
  )
  return row!.unsettled
}

/** An operator gives a charge back, or (below 0) takes such a gift back. */
export async function adjust({ database }: SettlementBench, account: BenchAccount, amount: bigint): Promise<void> {
  const made = await adjustAccount(database, account, { id: randomUUID(), amount, reason: 'test', madeBy: 'test' })
  assert.equal(made.decision, 'made')
}

/** The account's payments in the order of their numbers, each as state, first and last entry, value. */
export async function paymentsOf({ database }: SettlementBench, { partition, id }: BenchAccount) {
  const rows = await database.query<{ state: string; first_entry: bigint; last_entry: bigint; value: bigint }>(
    'select state, first_entry, last_entry, value from payments where partition = $1 and account_id = $2 order by number',
    [partition, id],
  )
  return rows.map((row) => [row.state, row.first_entry, row.last_entry, row.value] as const)
}
