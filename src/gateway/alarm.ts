/** Something that an operator should look at. Nothing is lost by it; something waits or was odd. */
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

/** Tells the same thing once a minute at most: what lasts would otherwise be told at every look. */
export function withoutRepeats(onAlarm: OnAlarm, clock: () => number): OnAlarm {
  const toldAtMs = new Map<string, number>()
  return (alarm) => {
    const key = `${alarm.code} ${alarm.message}`
    const told = toldAtMs.get(key)
    if (told !== undefined && clock() - told < repeatMs) return
    if (toldAtMs.size >= rememberedMax) toldAtMs.clear()
    toldAtMs.set(key, clock())
    onAlarm(alarm)
  }
}
