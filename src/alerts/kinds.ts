/** What the threshold of a rule counts. */
export const alertUnits = ['usdc', 'days', 'times', 'percent', 'minutes', 'none'] as const
export type AlertUnit = (typeof alertUnits)[number]

export const alertLevels = ['warning', 'error'] as const
export type AlertLevel = (typeof alertLevels)[number]

type Kind = {
  readonly unit: AlertUnit
  /** `below`: fires below the threshold, and again only after the re-arm level was reached. `above`: the other way around. */
  readonly fires: 'below' | 'above'
  /** For accounts that never set the rule; undefined: off. USDC are atomic. */
  readonly initial: bigint | undefined
  readonly max: bigint
  readonly rearm: (threshold: bigint) => bigint
}

const usdcMax = 1_000_000_000_000_000n
const half = (threshold: bigint) => threshold / 2n
const fourFifths = (threshold: bigint) => (threshold * 4n + 4n) / 5n
/** For conditions that hold or do not: an empty balance, a disabled webhook. */
const once = { unit: 'none', initial: 1n, max: 1n, rearm: () => 1n } as const

/**
 * Every kind of alert. Spending is counted by hours and days of UTC, as the limits of keys are. docs/alerts.md describes them, and the
 * constraint of `alert_rules` lists them.
 */
export const alertKinds = {
  balance_empty: { ...once, fires: 'below' },
  balance_below: {
    unit: 'usdc',
    fires: 'below',
    initial: undefined,
    max: usdcMax,
    rearm: (threshold) => threshold + threshold / 10n + 1n,
  },
  days_left: { unit: 'days', fires: 'below', initial: 3n, max: 365n, rearm: (threshold) => threshold + 1n },
  spend_hour: { unit: 'usdc', fires: 'above', initial: undefined, max: usdcMax, rearm: fourFifths },
  spend_day: { unit: 'usdc', fires: 'above', initial: undefined, max: usdcMax, rearm: fourFifths },
  spend_unusual: { unit: 'times', fires: 'above', initial: undefined, max: 1_000n, rearm: half },
  key_limit: { unit: 'percent', fires: 'above', initial: 80n, max: 100n, rearm: fourFifths },
  error_rate: { unit: 'percent', fires: 'above', initial: undefined, max: 100n, rearm: half },
  settlement_stuck: { unit: 'minutes', fires: 'above', initial: 120n, max: 10_080n, rearm: half },
  withdrawal_stuck: { unit: 'minutes', fires: 'above', initial: 60n, max: 10_080n, rearm: half },
  webhook_disabled: { ...once, fires: 'above' },
} as const satisfies Readonly<Record<string, Kind>>

export type AlertKind = keyof typeof alertKinds
export const alertKindNames = Object.keys(alertKinds) as [AlertKind, ...AlertKind[]]

/** The rule of an account for one kind. Without a threshold it is off. */
export type AlertRule = {
  readonly kind: AlertKind
  readonly threshold: bigint | undefined
  /** The level at which a fired alert is resolved, and can fire again. */
  readonly rearm: bigint | undefined
  /** True while the account uses the initial rule. */
  readonly isInitial: boolean
}

export function initialRule(kind: AlertKind): AlertRule {
  const { initial, rearm }: Kind = alertKinds[kind]
  return { kind, threshold: initial, rearm: initial === undefined ? undefined : rearm(initial), isInitial: true }
}

/**
 * Whether an alert with this value fires or is resolved. Undefined: it stays as it is. Without a value there is nothing to warn about.
 */
export function decide(
  { kind, threshold, rearm }: AlertRule,
  value: bigint | undefined,
  isFired: boolean,
): 'fire' | 'resolve' | undefined {
  if (threshold === undefined || rearm === undefined || value === undefined) return isFired ? 'resolve' : undefined
  const { fires }: Kind = alertKinds[kind]
  if (isFired) return (fires === 'below' ? value >= rearm : value < rearm) ? 'resolve' : undefined
  return (fires === 'below' ? value < threshold : value >= threshold) ? 'fire' : undefined
}
