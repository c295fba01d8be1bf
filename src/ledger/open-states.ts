// What is under way, in SQL: the states of rows whose money can still move. In the words of the partial indexes.

export const openPaymentStates = `('allocated', 'signed', 'submitted', 'received', 'batched', 'confirmed', 'unknown')`
export const openWithdrawalStates = `('requested', 'returning', 'returned', 'sent')`
/** Their transaction is in no block yet. */
export const openSweepStates = `('planned', 'sent')`
/** What they carry is not credited yet. */
export const uncreditedSweepStates = `('planned', 'sent', 'confirmed')`
