import type { LedgerNumbers } from '../ledger/ledger-numbers.ts'
import { holdSecondsMax, type OperatorHealth, type StuckItem } from '../ledger/operator-health.ts'
import { format, fromAtomic } from '../money/usdc.ts'

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
  const items = [...ofLedger(observed), ...ofChain(observed), ...ofPayments(observed), ...ofStuck(observed)]
  return items.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning'))
}

type ItemDetails = Pick<AttentionItem, 'code' | 'title' | 'detail'> & {
  readonly since?: Date
  readonly accountId?: string
}

function item(
  level: AttentionItem['level'],
  runbook: string,
  { since, accountId, ...details }: ItemDetails,
): AttentionItem {
  return {
    level,
    ...details,
    since: since?.toISOString() ?? null,
    account_id: accountId ?? null,
    runbook: `/docs/runbooks/${runbook}`,
  }
}

function ofLedger({ health: { frozen, suspended, processMetrics }, nowMs }: Observed): readonly AttentionItem[] {
  const audit = processMetrics.get('audit_recent_violations')
  const auditAge = audit === undefined ? undefined : (nowMs - audit.at.getTime()) / 1000
  return [
    ...(frozen === undefined
      ? []
      : [
          item('error', 'ledger-frozen', {
            code: 'ledger_frozen',
            title: 'The ledger is frozen and refuses requests',
            detail: frozen.reason,
            since: frozen.at,
          }),
        ]),
    ...(auditAge !== undefined && auditAge > auditSecondsMax
      ? [
          item('warning', 'incident', {
            code: 'audit_not_run',
            title: 'The ledger was not audited for a while',
            detail: `The last audit was ${minutes(auditAge)} ago; one is due every minute.`,
            since: audit!.at,
          }),
        ]
      : []),
    ...suspended.map(({ id, name, at, reason }) =>
      item('warning', 'incident', {
        code: 'account_suspended',
        title: `Account "${name}" is suspended`,
        detail: reason,
        since: at,
        accountId: id,
      }),
    ),
  ]
}

function ofChain({ numbers, health: { processMetrics }, isSandbox }: Observed): readonly AttentionItem[] {
  const { solvent, solvencySeconds, sellerShort, cursors } = numbers
  const gas = processMetrics.get('relayer_gas_micro_usdc')
  const behind = isSandbox ? [] : cursors.filter(({ seconds }) => seconds > cursorSecondsMax)
  return [
    ...(solvent === false
      ? [
          item('error', 'reconcile-mismatch', {
            code: 'insolvent',
            title: 'The chain has less than the ledger says',
            detail: 'At least one account is short. If this lasts, payments and withdrawals stop.',
          }),
        ]
      : []),
    ...(sellerShort !== undefined && sellerShort > 0
      ? [
          item('error', 'seller-short', {
            code: 'seller_short',
            title: 'The seller owes more than it has',
            detail: `${atomicText(sellerShort)} USDC is missing.`,
          }),
        ]
      : []),
    ...(solvencySeconds !== undefined && solvencySeconds > solvencySecondsMax
      ? [
          item('warning', 'settlement-stuck', {
            code: 'solvency_not_checked',
            title: 'Ledger and chain were not compared for a while',
            detail: `The last comparison was ${minutes(solvencySeconds)} ago; one is due every ten seconds.`,
          }),
        ]
      : []),
    ...(gas !== undefined && gas.value < gasAtomicMin
      ? [
          item('warning', 'lost-relayer-gas', {
            code: 'relayer_gas_low',
            title: 'The relayer is short of gas',
            detail: `It has ${atomicText(gas.value)} USDC; below ${atomicText(gasAtomicMin)} USDC deposits may stop.`,
            since: gas.at,
          }),
        ]
      : []),
    ...behind.map(({ name, seconds }) =>
      item('warning', 'settlement-stuck', {
        code: 'chain_behind',
        title: `The chain reader is behind (${name})`,
        detail: `No progress for ${minutes(seconds)}.`,
      }),
    ),
  ]
}

function ofPayments({
  numbers: { oldestPaymentSeconds, failedPayments, payments },
}: Observed): readonly AttentionItem[] {
  const open = payments.reduce((sum, { count }) => sum + count, 0)
  return [
    ...(oldestPaymentSeconds > paymentSecondsMax
      ? [
          item('warning', 'settlement-stuck', {
            code: 'payments_stuck',
            title: 'Payments do not become final',
            detail: `${open} open; the oldest waits for ${minutes(oldestPaymentSeconds)}.`,
          }),
        ]
      : []),
    ...(failedPayments > 0
      ? [
          item('warning', 'settlement-stuck', {
            code: 'payments_failed',
            title: `${failedPayments} ${failedPayments === 1 ? 'payment' : 'payments'} failed`,
            detail: 'Their charges go into later payments. Find out why the gateway refused them.',
          }),
        ]
      : []),
  ]
}

function ofStuck({ health: { oldHolds, oldWithdrawals, oldSweeps } }: Observed): readonly AttentionItem[] {
  const stuckItem =
    (code: string, title: string, level: AttentionItem['level'], runbook: string) => (stuck: StuckItem) =>
      item(level, runbook, {
        code,
        title,
        detail: `${format(stuck.amount)} USDC, ${stuck.state} (${stuck.id})`,
        since: stuck.createdAt,
        accountId: stuck.accountId,
      })
  return [
    ...oldHolds.map(
      stuckItem('hold_old', `A hold is older than ${holdSecondsMax / 60} minutes`, 'warning', 'incident'),
    ),
    ...oldWithdrawals.map(stuckItem('withdrawal_stuck', 'A withdrawal is not paid', 'error', 'settlement-stuck')),
    ...oldSweeps.map(stuckItem('sweep_stuck', 'A deposit has not reached the gateway', 'warning', 'lost-relayer-gas')),
  ]
}

function minutes(seconds: number): string {
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`
}

function atomicText(atomic: number): string {
  return format(fromAtomic(BigInt(Math.round(atomic))))
}
