import type { LedgerNumbers } from '../ledger/ledger-numbers.ts'
import { holdSecondsMax, type OperatorHealth, type StuckItem } from '../ledger/operator-health.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import type { ProviderHealth } from '../providers/provider.ts'

export type AttentionItem = {
  readonly level: 'error' | 'warning'
  readonly code: string
  readonly title: string
  readonly detail: string
  readonly since: string | null
  readonly account_id: string | null
  readonly runbook: string
}

/** Input of the operator's page. Ages are in seconds. */
export type Observed = {
  readonly health: OperatorHealth
  readonly numbers: LedgerNumbers
  readonly providers: readonly Pick<ProviderHealth, 'provider' | 'state' | 'lastFailure'>[]
  readonly nowMs: number
  /** The sandbox chain has a block only when there is a transaction, so a reader without progress is normal there. */
  readonly isSandbox: boolean
}

// The same thresholds as in deploy/prometheus/alerts.yaml.
const paymentSecondsMax = 300
const cursorSecondsMax = 120
const solvencySecondsMax = 120
const auditSecondsMax = 600
const gasAtomicMin = 1_000_000

/** Problems for the operator, errors first. Every item names its runbook. */
export function findAttention(observed: Observed): readonly AttentionItem[] {
  const found = [ofLedger, ofProviders, ofChain, ofPayments, ofStuck].flatMap((find) => find(observed))
  const items = found.filter((one) => one !== false)
  return items.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning'))
}

type Found = readonly (AttentionItem | false)[]

type ItemDetails = { readonly detail: string; readonly since?: Date; readonly accountId?: string }

function item(
  level: AttentionItem['level'],
  runbook: string,
  [code, title]: readonly [string, string],
  { detail, since, accountId }: ItemDetails,
): AttentionItem {
  const [sinceText, account_id] = [since?.toISOString() ?? null, accountId ?? null]
  return { level, code, title, detail, since: sinceText, account_id, runbook: `/docs/runbooks/${runbook}` }
}

/** One failure may be caused by the request itself, so only an open circuit breaker is an error. */
function ofProviders({ providers, nowMs }: Observed): Found {
  return providers
    .filter(({ state, lastFailure }) => state !== 'closed' || lastFailure?.isLatest)
    .map(({ provider, state, lastFailure }) => {
      const title =
        state === 'open' ? `Provider ${provider} is failing` : `The last answer of provider ${provider} failed`
      return item(state === 'open' ? 'error' : 'warning', 'incident', ['provider_failing', title], {
        detail: lastFailure?.message ?? 'Its circuit breaker is open.',
        ...(lastFailure && { since: new Date(nowMs - lastFailure.agoMs) }),
      })
    })
}

function ofLedger({ health: { frozen, suspended, processMetrics }, nowMs }: Observed): Found {
  const audit = processMetrics.get('audit_recent_violations')
  const auditAge = audit === undefined ? 0 : (nowMs - audit.at.getTime()) / 1000
  return [
    frozen !== undefined &&
      item('error', 'ledger-frozen', ['ledger_frozen', 'The ledger is frozen and refuses requests'], {
        detail: frozen.reason,
        since: frozen.at,
      }),
    auditAge > auditSecondsMax &&
      item('warning', 'incident', ['audit_not_run', 'The ledger was not audited for a while'], {
        detail: `The last audit was ${minutes(auditAge)} ago; one is due every minute.`,
        since: audit!.at,
      }),
    ...suspended.map(({ id, name, at, reason }) =>
      item('warning', 'incident', ['account_suspended', `Account "${name}" is suspended`], {
        detail: reason,
        since: at,
        accountId: id,
      }),
    ),
  ]
}

function ofChain({ numbers, health: { processMetrics }, isSandbox }: Observed): Found {
  const { solvent, solvencySeconds = 0, sellerShort = 0, cursors } = numbers
  const gas = processMetrics.get('relayer_gas_micro_usdc')
  const behind = isSandbox ? [] : cursors.filter(({ seconds }) => seconds > cursorSecondsMax)
  return [
    solvent === false &&
      item('error', 'reconcile-mismatch', ['insolvent', 'The chain has less than the ledger says'], {
        detail: 'At least one account is short. If this lasts, payments and withdrawals stop.',
      }),
    sellerShort > 0 &&
      item('error', 'seller-short', ['seller_short', 'The seller owes more than it has'], {
        detail: `${atomicText(sellerShort)} USDC is missing.`,
      }),
    solvencySeconds > solvencySecondsMax &&
      item('warning', 'settlement-stuck', ['solvency_not_checked', 'Ledger and chain were not compared for a while'], {
        detail: `The last comparison was ${minutes(solvencySeconds)} ago; one is due every ten seconds.`,
      }),
    gas !== undefined &&
      gas.value < gasAtomicMin &&
      item('warning', 'lost-relayer-gas', ['relayer_gas_low', 'The relayer is short of gas'], {
        detail: `It has ${atomicText(gas.value)} USDC; below ${atomicText(gasAtomicMin)} USDC deposits may stop.`,
        since: gas.at,
      }),
    ...behind.map(({ name, seconds }) =>
      item('warning', 'settlement-stuck', ['chain_behind', `The chain reader is behind (${name})`], {
        detail: `No progress for ${minutes(seconds)}.`,
      }),
    ),
  ]
}

function ofPayments({ numbers: { oldestPaymentSeconds, failedPayments, payments } }: Observed): Found {
  const open = payments.reduce((sum, { count }) => sum + count, 0)
  const failed = `${failedPayments} ${failedPayments === 1 ? 'payment' : 'payments'} failed`
  return [
    oldestPaymentSeconds > paymentSecondsMax &&
      item('warning', 'settlement-stuck', ['payments_stuck', 'Payments do not become final'], {
        detail: `${open} open; the oldest waits for ${minutes(oldestPaymentSeconds)}.`,
      }),
    failedPayments > 0 &&
      item('warning', 'settlement-stuck', ['payments_failed', failed], {
        detail: 'Their charges go into later payments. Find out why the gateway refused them.',
      }),
  ]
}

function ofStuck({ health: { oldHolds, oldWithdrawals, oldSweeps } }: Observed): Found {
  const stuckItem =
    (level: AttentionItem['level'], runbook: string, code: string, title: string) =>
    ({ id, amount, state, createdAt, accountId }: StuckItem) => {
      const detail = `${format(amount)} USDC, ${state} (${id})`
      return item(level, runbook, [code, title], { detail, since: createdAt, accountId })
    }
  const oldHold = `A hold is older than ${holdSecondsMax / 60} minutes`
  return [
    ...oldHolds.map(stuckItem('warning', 'incident', 'hold_old', oldHold)),
    ...oldWithdrawals.map(stuckItem('error', 'settlement-stuck', 'withdrawal_stuck', 'A withdrawal is not paid')),
    ...oldSweeps.map(stuckItem('warning', 'lost-relayer-gas', 'sweep_stuck', 'A deposit has not reached the gateway')),
  ]
}

function minutes(seconds: number): string {
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`
}

function atomicText(atomic: number): string {
  return format(fromAtomic(BigInt(Math.round(atomic))))
}
