import { Counter, Gauge, Histogram, type Metric } from './metric.ts'

// From a warm cache to a model that reasons for minutes.
const answerSeconds = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640]
// From a commit on a fast disk to an overloaded database.
const commitSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
/** Error codes of requests that failed because of the upstream. */
export const upstreamErrorCodes = ['upstream_error', 'upstream_timeout', 'overloaded'] as const
const batchSizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
const shares = [0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 4]

export type ServiceMetrics = ReturnType<typeof createServiceMetrics>

/** All metrics that this process counts itself. `ledger-metrics.ts` reads those of the ledger and the chain from the database. */
export function createServiceMetrics() {
  return {
    ...requestMetrics(),
    ...upstreamMetrics(),
    ...chargeMetrics(),
    ...ledgerMetrics(),
    ...auditMetrics(),
    ...deliveryMetrics(),
  } satisfies Record<string, Metric>
}

/** Requests as customers see them. */
function requestMetrics() {
  return {
    requests: new Counter({
      name: 'penny_requests_total',
      help: 'Chat completions by how they ended. `code` is the error code, empty without an error; a request that was refused without a hold has the model "none" and `stream` "false".',
      labels: ['model', 'status', 'code', 'stream'],
    }),
    requestSeconds: new Histogram({
      name: 'penny_request_duration_seconds',
      help: 'From the arrival of an admitted request to its end in the ledger.',
      labels: ['model', 'stream'],
      buckets: answerSeconds,
    }),
    firstTokenSeconds: new Histogram({
      name: 'penny_ttft_seconds',
      help: 'From the hold to the first output of the model.',
      labels: ['model'],
      buckets: answerSeconds,
    }),
    toolCalls: new Counter({
      name: 'penny_tool_calls_total',
      help: 'Calls of our own tools by the model.',
      labels: ['tool', 'status'],
    }),
    replays: new Counter({
      name: 'penny_replays_total',
      help: 'Recorded answers that were replayed to retries, without a charge.',
    }),
  }
}

/** The upstream, and each provider behind it. */
function upstreamMetrics() {
  return {
    upstreamSeconds: new Histogram({
      name: 'penny_upstream_duration_seconds',
      help: 'One upstream request, from its start to its last event. A request that searches makes several.',
      labels: ['model', 'outcome'],
      buckets: answerSeconds,
    }),
    upstreamErrors: new Counter({
      name: 'penny_upstream_errors_total',
      help: 'Requests that failed because of the upstream, by error code. `overloaded` includes requests that a stop of this service ended.',
      labels: ['code'],
      fromStart: upstreamErrorCodes,
    }),
    providerAttempts: new Counter({
      name: 'penny_provider_attempts_total',
      help: 'Requests sent to providers, by how they ended. A request that fails over is sent to several.',
      labels: ['provider', 'model', 'outcome'],
    }),
    providerCharged: new Counter({
      name: 'penny_provider_charged_micro_usdc_total',
      help: 'What customers were charged for tokens of requests that the provider answered, in atomic USDC.',
      labels: ['provider', 'model'],
    }),
    providerCost: new Counter({
      name: 'penny_provider_cost_micro_usdc_total',
      help: 'What the provider charges you at the costs in PROVIDERS_FILE, in atomic USDC. Requests of unknown cost are left out.',
      labels: ['provider', 'model'],
    }),
  }
}

/** What requests used and cost. */
function chargeMetrics() {
  return {
    tokens: new Counter({
      name: 'penny_tokens_total',
      help: 'Billed tokens. Reasoning is part of output, cached is part of input.',
      labels: ['model', 'type'],
    }),
    charged: new Counter({
      name: 'penny_charged_micro_usdc_total',
      help: 'What was charged, in atomic USDC.',
      labels: ['model', 'component'],
    }),
    refunded: new Counter({
      name: 'penny_refunded_micro_usdc_total',
      help: 'Released parts of holds, in atomic USDC: the unused part of a charge, or a whole void.',
      labels: ['reason'],
    }),
    quoteRatio: new Histogram({
      name: 'penny_quote_ratio',
      help: 'What a charged request cost, as a share of its quote.',
      labels: ['model'],
      buckets: shares,
    }),
  }
}

/** Holds and their ends, and how long the ledger takes for them. */
function ledgerMetrics() {
  return {
    holds: new Counter({
      name: 'penny_holds_total',
      help: 'Requested holds, by the ledger’s decision: held, or the code of the refusal.',
      labels: ['decision'],
    }),
    ends: new Counter({
      name: 'penny_ends_total',
      help: 'Ends of held requests in the ledger.',
      labels: ['status', 'voided'],
    }),
    reopenedHolds: new Counter({
      name: 'penny_reopened_holds_total',
      help: 'Ended requests that the database had open again, as after a failover that lost commits, and that were ended again: as they had been (same), or at their last checkpoint (checkpoint).',
      labels: ['charge'],
      fromStart: ['same', 'checkpoint'],
    }),
    lostHolds: new Counter({
      name: 'penny_lost_holds_total',
      help: 'Requests whose end found no hold, as after a failover that lost commits. They were served and not charged.',
    }),
    lostCharges: new Counter({
      name: 'penny_lost_charges_micro_usdc_total',
      help: 'What requests without a hold would have been charged, in atomic USDC.',
    }),
    phaseSeconds: new Histogram({
      name: 'penny_ledger_wait_seconds',
      help: 'How long requests waited for the ledger: to hold, to charge.',
      labels: ['phase'],
      buckets: commitSeconds,
    }),
    batchSize: new Histogram({
      name: 'penny_ledger_batch_size',
      help: 'Calls that shared one commit.',
      labels: ['operation'],
      buckets: batchSizes,
    }),
    batchSeconds: new Histogram({
      name: 'penny_ledger_batch_seconds',
      help: 'How long one commit took.',
      labels: ['operation'],
      buckets: commitSeconds,
    }),
  }
}

/** What the last audit found. */
function auditMetrics() {
  return {
    imbalance: new Gauge({
      name: 'penny_ledger_imbalance_micro_usdc',
      help: 'Atomic USDC that are not accounted for, by the last audit of the accounts in use (recent) and of all. Must be 0.',
      labels: ['scope'],
    }),
    violations: new Gauge({
      name: 'penny_ledger_violations',
      help: 'Rows that break an invariant of the ledger, by the last audit. Must be 0.',
      labels: ['scope'],
    }),
    auditedAt: new Gauge({
      name: 'penny_ledger_audited_timestamp_seconds',
      help: 'When the last audit ended.',
      labels: ['scope'],
    }),
  }
}

/** What this process delivers to others: webhooks, spans, this page. */
function deliveryMetrics() {
  return {
    webhookAttempts: new Counter({
      name: 'penny_webhook_attempts_total',
      help: 'Attempts to deliver webhooks, by outcome: delivered or failed.',
      labels: ['outcome'],
    }),
    spansDropped: new Counter({
      name: 'penny_spans_dropped_total',
      help: 'Spans that were not exported: the collector is unreachable or slow.',
    }),
    readErrors: new Counter({
      name: 'penny_metrics_read_errors_total',
      help: 'Scrapes whose numbers from the database could not be read in time; they are left out of that page.',
    }),
  }
}
