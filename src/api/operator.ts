import { isOperator } from '../identity/operators.ts'
import type { Session } from '../identity/sessions.ts'
import { isDemoAccount } from '../ledger/demo-account.ts'
import { ledgerOperations } from '../ledger/holds.ts'
import { type LedgerNumbers, readLedgerNumbers } from '../ledger/ledger-numbers.ts'
import { type AccountCursor, listOperatorAccounts, type OperatorAccount } from '../ledger/operator-accounts.ts'
import { type OperatorHealth, readOperatorHealth } from '../ledger/operator-health.ts'
import { type RevenueDay, type RevenueRow, readRevenueDay } from '../ledger/operator-revenue.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, type Usdc, zero } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { operatorContracts } from '../openapi/contracts/operator.ts'
import { unusable } from '../openapi/input-refusal.ts'
import type { ProviderHealth } from '../providers/provider.ts'
import { findAttention } from './operator-attention.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

const dayMs = 86_400_000

/** In the sandbox the local developer is an operator too. */
export async function isOperatorOf(
  { lookUps, operators, chainServices }: Pick<ApiServices, 'lookUps' | 'operators' | 'chainServices'>,
  session: Session,
): Promise<boolean> {
  const { accountId, role } = session
  if (chainServices.sandbox !== undefined && isDemoAccount(accountId) && role === 'owner') return true
  return isOperator(lookUps, operators, session)
}

/** The operator's view. Read-only, and without prompts or answers of customers. */
export function routeOperator(router: ApiRouter, services: ApiServices): void {
  const { operatorDatabase: database, holds, health, providers, chainServices } = services
  const revenueOf = cachedRevenue((day) => readRevenueDay(database, day))

  router.at(operatorContracts.listOperatorAccounts).answer(async ({ query }) => {
    const page = await listOperatorAccounts(database, {
      text: query.find ?? '',
      isWallet: query.kind === 'wallet',
      after: query.cursor === undefined ? undefined : readCursor(query.cursor),
      limit: query.limit,
    })
    return {
      object: 'list',
      data: page.accounts.map(renderAccount),
      has_more: page.next !== undefined,
      next_cursor: page.next === undefined ? null : writeCursor(page.next),
    }
  })

  router.at(operatorContracts.getOperatorRevenue).answer(async ({ query }) => {
    const today = Math.floor(Date.now() / dayMs) * dayMs
    const days: RevenueDay[] = []
    // Sequential: a long range must not occupy the whole pool.
    for (let back = query.days - 1; back >= 0; back -= 1)
      days.push(await revenueOf(new Date(today - back * dayMs), today))
    return renderRevenue(days)
  })

  router.at(operatorContracts.getOperatorHealth).answer(async () => {
    const [numbers, ledger, service, solvency] = await Promise.all([
      readLedgerNumbers(database),
      readOperatorHealth(database),
      health.look(),
      chainServices.solvency?.().catch(() => undefined),
    ])
    const nowMs = Date.now()
    const isSandbox = chainServices.sandbox !== undefined
    const observed = { health: ledger, numbers, providers: providers(), nowMs, isSandbox }
    return {
      object: 'operator_health',
      at: new Date(nowMs).toISOString(),
      attention: [...findAttention(observed)],
      nodes: ledger.nodes.map(({ id, startedAt, leaseSeconds }) => ({
        id,
        started_at: startedAt.toISOString(),
        lease_seconds: Math.round(leaseSeconds * 10) / 10,
        alive: leaseSeconds >= 0,
        this_node: id === holds.node,
      })),
      parts: partsOf({ service, numbers, ledger, solvency, providers: observed.providers, nowMs }),
      queues: queuesOf(numbers, (operation) => holds.queued(operation)),
    }
  })
}

function renderAccount(
  account: OperatorAccount,
): AnswerOf<typeof operatorContracts.listOperatorAccounts>['data'][number] {
  return {
    object: 'operator_account',
    id: account.id,
    name: account.name,
    deposit_address: account.address ?? null,
    owner_address: account.ownerAddress ?? null,
    wallet: account.wallet ?? null,
    ...moneyFields({
      available: account.available,
      held: account.held,
      unsettled: account.unsettled,
      spend_30d: account.spend,
    }),
    status: account.closedAt !== undefined ? 'closed' : account.suspendedAt !== undefined ? 'suspended' : 'open',
    suspended_reason: account.suspendedReason ?? null,
    created_at: account.createdAt.toISOString(),
    last_request_at: account.lastRequestAt?.toISOString() ?? null,
  }
}

function writeCursor({ createdAt, id }: AccountCursor): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url')
}

function readCursor(cursor: string): AccountCursor {
  try {
    const [createdAt, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[]
    if (
      typeof createdAt === 'string' &&
      !Number.isNaN(Date.parse(createdAt)) &&
      typeof id === 'string' &&
      /^[0-9a-f-]{36}$/.test(id)
    )
      return { createdAt, id }
  } catch {
    // Refused below.
  }
  throw unusable('cursor', 'it must be the cursor of an earlier page')
}

/** Caches days that can no longer change: a charge can be refunded for a day, and counts in the hour in which its request began. */
function cachedRevenue(read: (day: Date) => Promise<RevenueDay>) {
  const kept = new Map<number, RevenueDay>()
  const keptMax = 200
  return async (day: Date, today: number): Promise<RevenueDay> => {
    const found = kept.get(day.getTime()) ?? (await read(day))
    if (kept.size >= keptMax) kept.clear()
    if (today - day.getTime() > 2 * dayMs) kept.set(day.getTime(), found)
    return found
  }
}

/** Explains an unknown or incomplete cost or margin; empty when all costs are known. */
function costNote({ charged, search, costed }: Sums): string {
  const unknown = fromAtomic(charged - search - costed)
  const searches =
    search === zero ? '' : ' What search providers charge is not known: web searches are not part of the margin.'
  if (unknown === zero) return searches.trim()
  return `Requests that were charged ${format(unknown)} USDC have no known upstream cost and are not part of the margin: set input_cost_per_million and output_cost_per_million in PROVIDERS_FILE.${searches}`
}

type Sums = Omit<RevenueRow, 'model' | 'provider'>

function renderRevenue(days: readonly RevenueDay[]): AnswerOf<typeof operatorContracts.getOperatorRevenue> {
  const rows = days.flatMap((day) => day.rows)
  const total = sumOf(rows)
  return {
    object: 'operator_revenue',
    from: dateOf(days[0]!.day),
    to: dateOf(days.at(-1)!.day),
    total: {
      ...renderSums(total),
      ...moneyFields({ given_back: days.reduce<Usdc>((sum, { givenBack }) => fromAtomic(sum + givenBack), zero) }),
    },
    models: groupSums(rows, ({ model }) => model).map(({ first: { model }, sums }) => ({ model, ...renderSums(sums) })),
    providers: groupSums(rows, ({ model, provider }) => `${model} ${provider}`).map(({ first, sums }) => ({
      model: first.model,
      provider: first.provider,
      attempts: sums.attempts,
      ...renderSums(sums),
    })),
    days: days.map((day) => ({
      day: dateOf(day.day),
      ...renderSums(sumOf(day.rows)),
      ...moneyFields({ given_back: day.givenBack }),
      models: groupSums(day.rows, ({ model }) => model).map(({ first: { model }, sums }) => ({
        model,
        ...renderSums(sums),
      })),
    })),
    upstream_cost_note: costNote(total),
  }
}

/** One sum per group, largest charge first. */
function groupSums(rows: readonly RevenueRow[], keyOf: (row: RevenueRow) => string) {
  return [...Map.groupBy(rows, keyOf)]
    .map(([key, group]) => ({ key, first: group[0]!, sums: sumOf(group) }))
    .sort((a, b) => Number(b.sums.charged - a.sums.charged) || a.key.localeCompare(b.key))
}

function sumOf(rows: readonly RevenueRow[]): Sums {
  return rows.reduce<Sums>(
    (sum, row) => ({
      requests: sum.requests + row.requests,
      charged: fromAtomic(sum.charged + row.charged),
      search: fromAtomic(sum.search + row.search),
      searches: sum.searches + row.searches,
      attempts: sum.attempts + row.attempts,
      upstreamCost: fromAtomic(sum.upstreamCost + row.upstreamCost),
      costed: fromAtomic(sum.costed + row.costed),
    }),
    { requests: 0, charged: zero, search: zero, searches: 0, attempts: 0, upstreamCost: zero, costed: zero },
  )
}

function renderSums({ requests, charged, search, searches, upstreamCost, costed }: Sums) {
  const isKnown = upstreamCost > 0n || costed > 0n || charged === search
  // Negative when a model is sold below its cost, so it is not a `Usdc`.
  const margin = costed - upstreamCost
  return {
    requests,
    ...moneyFields({ charged, search }),
    searches,
    upstream_cost_atomic: isKnown ? String(upstreamCost) : null,
    upstream_cost: isKnown ? format(upstreamCost) : null,
    margin_atomic: isKnown ? String(margin) : null,
    margin: isKnown ? format(fromAtomic(margin)) : null,
  }
}

function dateOf(day: Date): string {
  return day.toISOString().slice(0, 10)
}

type Seen = {
  readonly service: Awaited<ReturnType<ApiServices['health']['look']>>
  readonly numbers: LedgerNumbers
  readonly ledger: OperatorHealth
  readonly solvency: Readonly<Record<string, unknown>> | undefined
  readonly providers: readonly ProviderHealth[]
  readonly nowMs: number
}

type Part = AnswerOf<typeof operatorContracts.getOperatorHealth>['parts'][number]

const providerStates = { 'half-open': 'last_failed', open: 'failing' } as const

function providerPart({ provider, state, firstByteMs, succeeded, failed, lastFailure }: ProviderHealth): Part {
  const latency = firstByteMs === undefined ? [] : [`first byte after ${firstByteMs} ms`]
  const failure =
    lastFailure === undefined
      ? []
      : [`last error ${Math.round(lastFailure.agoMs / 1000)} s ago: ${lastFailure.message}`]
  const calls = succeeded + failed
  const known = calls === 0 ? 'unused' : lastFailure?.isLatest ? 'last_failed' : 'working'
  return {
    name: `Provider ${provider}`,
    state: state === 'closed' ? known : providerStates[state],
    detail: [
      `Circuit breaker ${state}`,
      ...(calls === 0 ? [] : [`${succeeded} of ${calls} attempts succeeded`]),
      ...latency,
      ...failure,
    ].join('; '),
  }
}

function partsOf({ service, numbers, ledger, solvency, providers, nowMs }: Seen): Part[] {
  const ago = (at: Date) => `${Math.max(0, Math.round((nowMs - at.getTime()) / 1000))} s ago`
  const gas = ledger.processMetrics.get('relayer_gas_micro_usdc')
  const audit = (scope: string) => ledger.processMetrics.get(`audit_${scope}_violations`)
  const auditPart = (name: string, violations: ReturnType<typeof audit>): Part => ({
    name,
    state: violations === undefined ? 'unknown' : violations.value === 0 ? 'working' : 'failing',
    detail: violations === undefined ? 'No audit yet.' : `${violations.value} violations, ${ago(violations.at)}`,
  })
  const nodes = ledger.processMetrics.get('chain_nodes')
  const nodesFailing = ledger.processMetrics.get('chain_nodes_failing')?.value ?? 0
  const database = service.databaseMs === undefined ? 'No answer' : `${Math.round(service.databaseMs)} ms`
  const lastProgress = numbers.cursors.map(({ name, seconds }) => `${name} ${Math.round(seconds)} s ago`).join(', ')
  const final = numbers.oldestPaymentSeconds
  return [
    { name: 'Database', state: service.databaseMs === undefined ? 'failing' : 'working', detail: database },
    ...providers.map(providerPart),
    { name: 'Search provider', state: service.search, detail: 'From its latest answers to this node' },
    {
      name: 'Chain',
      state: service.chain,
      detail: lastProgress === '' ? 'Not read yet' : `Last progress: ${lastProgress}`,
    },
    {
      name: 'Chain nodes',
      state: nodes === undefined ? 'unknown' : nodesFailing === nodes.value ? 'failing' : 'working',
      detail:
        nodes === undefined
          ? 'Not reported by a settlement process yet'
          : `${nodes.value - nodesFailing} of ${nodes.value} answered when last asked, ${ago(nodes.at)}`,
    },
    {
      name: 'Gateway payments',
      state: numbers.payments.length === 0 ? 'unused' : final > 300 ? 'failing' : 'working',
      detail: numbers.payments.length === 0 ? 'No payment open' : `Oldest open payment: ${Math.round(final)} s`,
    },
    {
      name: 'Relayer gas',
      state: gas === undefined ? 'unknown' : gas.value < 1_000_000 ? 'failing' : 'working',
      detail:
        gas === undefined
          ? 'Not reported by a settlement process yet'
          : `${format(fromAtomic(BigInt(Math.round(gas.value))))} USDC, ${ago(gas.at)}`,
    },
    {
      name: 'Solvency',
      state: solvency === undefined ? 'off' : solvency.ok === true ? 'working' : 'failing',
      detail:
        typeof solvency?.checked_at === 'string' ? `Compared ${ago(new Date(solvency.checked_at))}` : 'Never compared',
    },
    auditPart('Audit of accounts in use', audit('recent')),
    auditPart('Audit of all accounts', audit('all')),
  ]
}

type Queue = AnswerOf<typeof operatorContracts.getOperatorHealth>['queues'][number]

function queuesOf(numbers: LedgerNumbers, queued: (operation: (typeof ledgerOperations)[number]) => number): Queue[] {
  const queue = (name: string, waiting: number, oldest: number | null, atomic?: number): Queue => ({
    name,
    waiting,
    amount_atomic: atomic === undefined ? null : String(Math.round(atomic)),
    amount: atomic === undefined ? null : format(fromAtomic(BigInt(Math.round(atomic)))),
    oldest_seconds: waiting === 0 ? null : oldest,
  })
  const payments = numbers.payments.reduce((sum, { count, atomic }) => [sum[0]! + count, sum[1]! + atomic], [0, 0])
  return [
    queue('Open requests', numbers.openRequests, numbers.oldestHoldSeconds, numbers.heldAtomic),
    queue('Payments in progress', payments[0]!, numbers.oldestPaymentSeconds, payments[1]!),
    queue('Arrivals not yet swept', numbers.arrivalsWaiting, null),
    queue('Sweeps in progress', numbers.sweepsOpen, numbers.oldestSweepSeconds),
    queue('Withdrawals in progress', numbers.withdrawalsOpen, numbers.oldestWithdrawalSeconds),
    queue(
      'Ledger calls of this node',
      ledgerOperations.reduce((sum, operation) => sum + queued(operation), 0),
      null,
    ),
  ]
}
