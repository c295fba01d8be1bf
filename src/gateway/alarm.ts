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
  | 'worker_failed'

export type OnAlarm = (alarm: Alarm) => void
