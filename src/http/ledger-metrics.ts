import type { LedgerNumbers } from '../ledger/ledger-numbers.ts'
import { Gauge, type Metric } from '../observe/metric.ts'

export type LedgerMetrics = {
  readonly metrics: readonly Metric[]
  /** Replaces the numbers; undefined when they could not be read. */
  show(numbers: LedgerNumbers | undefined): void
}

type Plain = readonly [name: string, help: string, read: (numbers: LedgerNumbers) => number | undefined]

const plain: readonly Plain[] = [
  ['penny_open_requests', 'Open requests of all nodes.', (n) => n.openRequests],
  ['penny_held_micro_usdc', 'Held by open requests, in atomic USDC.', (n) => n.heldAtomic],
  ['penny_hold_age_seconds_max', 'Age of the oldest open request.', (n) => n.oldestHoldSeconds],
  ['penny_settlement_lag_seconds', 'Age of the oldest payment that is not final.', (n) => n.oldestPaymentSeconds],
  [
    'penny_payments_failed',
    'Payments that failed at the gateway; their charges went into later ones.',
    (n) => n.failedPayments,
  ],
  [
    'penny_unpaid_age_seconds_max',
    'Age of the oldest charge that no payment covers yet.',
    (n) => n.oldestUnpaidSeconds,
  ],
  [
    'penny_unpaid_due_ratio',
    'Longest wait of a charge for its payment, as a multiple of when that is due: 1 is due now. Absent until settlement has run.',
    (n) => n.unpaidDueRatio,
  ],
  ['penny_deposits_waiting', 'Arrivals that were not swept into the gateway yet.', (n) => n.arrivalsWaiting],
  ['penny_sweeps_open', 'Open transactions that move deposits into the gateway.', (n) => n.sweepsOpen],
  ['penny_sweep_age_seconds_max', 'Age of the oldest open sweep.', (n) => n.oldestSweepSeconds],
  ['penny_withdrawals_open', 'Open withdrawals.', (n) => n.withdrawalsOpen],
  ['penny_withdrawal_age_seconds_max', 'Age of the oldest open withdrawal.', (n) => n.oldestWithdrawalSeconds],
  [
    'penny_webhook_wait_seconds_max',
    'Longest wait of an event for its first attempt; the pause of an endpoint that failed does not count.',
    (n) => n.webhookWaitSeconds,
  ],
  [
    'penny_webhook_event_age_seconds_max',
    'Age of the oldest event that was not yet sent to an enabled webhook endpoint that wants it, dead ones included.',
    (n) => n.oldestWebhookEventSeconds,
  ],
  [
    'penny_webhooks_disabled',
    'Webhook endpoints that are disabled because they failed, not by their owner.',
    (n) => n.webhooksDisabled,
  ],
  ['penny_ledger_frozen', '1 while the ledger is frozen and refuses new requests.', (n) => Number(n.frozen)],
  ['penny_nodes_alive', 'Nodes with a valid lease.', (n) => n.nodesAlive],
  [
    'penny_solvency_age_seconds',
    'Seconds since the ledger was last compared with the chain; absent before the first comparison.',
    (n) => n.solvencySeconds,
  ],
  [
    'penny_seller_short_micro_usdc',
    'What the seller owes back to accounts and does not have, in atomic USDC. Must be 0; absent when it was never compared.',
    (n) => n.sellerShort,
  ],
]

type ProcessMetric = readonly [key: string, name: string, help: string, type?: 'counter']

// Metrics that processes report through the database, by name. Unknown names are not shown.
const processMetrics: readonly ProcessMetric[] = [
  ['relayer_gas_micro_usdc', 'penny_relayer_gas_micro_usdc', "The relayer's gas balance, in atomic USDC."],
  ['deposits_seen', 'penny_deposits_seen_total', 'Transfers that arrived at deposit addresses.', 'counter'],
  ['deposits_credited', 'penny_deposits_credited_total', 'Deposits that were credited to accounts.', 'counter'],
  [
    'deposited_micro_usdc',
    'penny_deposited_micro_usdc_total',
    'What was deposited and credited, in atomic USDC.',
    'counter',
  ],
  ['payments_made', 'penny_payments_made_total', 'Payments that were made, failed ones included.', 'counter'],
  [
    'entries_paid',
    'penny_entries_paid_total',
    'Requests and corrections that payments cover. Divided by the payments made: requests per payment.',
    'counter',
  ],
  [
    'payment_gas',
    'penny_payment_gas_total',
    'Gas that settling payments took. Divided by the entries paid: gas per request. Absent where the gateway is not ours.',
    'counter',
  ],
]

/** Metrics of the numbers that are read from the database. */
export function createLedgerMetrics(): LedgerMetrics {
  const gauges = plain.map(([name, help]) => new Gauge({ name, help }))
  const payments = new Gauge({ name: 'penny_payments', help: 'Open payments, by state.', labels: ['state'] })
  const unsettled = new Gauge({
    name: 'penny_unsettled_micro_usdc',
    help: 'Charged and not yet final on chain, in atomic USDC, by state of the payment; unpaid: no payment covers it yet.',
    labels: ['state'],
  })
  const cursorAge = new Gauge({
    name: 'penny_chain_cursor_age_seconds',
    help: 'Seconds since a reader of the chain last made progress.',
    labels: ['cursor'],
  })
  const solvent = new Gauge({
    name: 'penny_solvent',
    help: '1 when the chain matches the ledger for every account. Must be 1.',
  })
  const processGauges = processMetrics.map(([key, name, help, type]) => ({
    key,
    gauge: new Gauge({ name, help, ...(type && { type }) }),
  }))
  const all = [...gauges, payments, unsettled, cursorAge, solvent, ...processGauges.map(({ gauge }) => gauge)]
  return {
    metrics: all,
    show(numbers) {
      for (const gauge of all) gauge.clear()
      if (numbers === undefined) return
      for (const [index, [, , read]] of plain.entries()) {
        const value = read(numbers)
        if (value !== undefined) gauges[index]!.set(value)
      }
      for (const { state, count, atomic } of numbers.payments) {
        payments.set(count, state)
        unsettled.set(atomic, state)
      }
      unsettled.set(numbers.unpaidAtomic, 'unpaid')
      for (const { name, seconds } of numbers.cursors) cursorAge.set(seconds, name)
      if (numbers.solvent !== undefined) solvent.set(Number(numbers.solvent))
      for (const { key, gauge } of processGauges) {
        const value = numbers.processMetrics.find(({ name }) => name === key)?.value
        if (value !== undefined) gauge.set(value)
      }
    },
  }
}
