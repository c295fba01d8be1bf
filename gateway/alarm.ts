/** A condition that an operator should look at. No money is lost: something waits or looks wrong. */
export type Alarm = {
  readonly code: AlarmCode
  readonly message: string
}

export type AlarmCode =
  | 'chain_unreachable'
  | 'wrong_chain'
  | 'logs_missing'
  | 'balance_mismatch'
  | 'relayer_without_gas'
  | 'gas_too_dear'
  | 'settlement_refused'
  | 'transaction_reverted'
  | 'transaction_superseded'
  | 'transaction_stuck'
  | 'transfer_skipped'
  | 'settled_elsewhere'
  | 'foreign_batch_unread'
  | 'withdrawal_refused'
  | 'worker_failed'

export type OnAlarm = (alarm: Alarm) => void

const repeatMs = 60_000
const rememberedMax = 1_000

/** Reports the same alarm at most once a minute: a lasting condition would otherwise be reported at every poll. */
export function withoutRepeats(onAlarm: OnAlarm, clock: () => number): OnAlarm {
  const reportedAtMs = new Map<string, number>()
  return (alarm) => {
    const key = `${alarm.code} ${alarm.message}`
    const reportedAt = reportedAtMs.get(key)
    if (reportedAt !== undefined && clock() - reportedAt < repeatMs) return
    if (reportedAtMs.size >= rememberedMax) reportedAtMs.clear()
    reportedAtMs.set(key, clock())
    onAlarm(alarm)
  }
}
