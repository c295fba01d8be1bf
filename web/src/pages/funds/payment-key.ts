// The idempotency keys of payments out. One form is one payment until it is known to be made: the answer to an attempt may have been lost,
// and a second key would pay again. The tab keeps the keys, so that a page that is loaded again still has them.

const prefix = 'penny.payment.'
const keys = new Map<string, string>()

export function paymentKey(payment: string): string {
  const key = keys.get(payment) ?? kept(payment) ?? crypto.randomUUID()
  keys.set(payment, key)
  try {
    sessionStorage.setItem(prefix + payment, key)
  } catch {
    // The browser forbids storage: the key lasts until the page is left.
  }
  return key
}

/** Call after success: the next submit of this form is a new payment. */
export function forgetPaymentKey(payment: string): void {
  keys.delete(payment)
  try {
    sessionStorage.removeItem(prefix + payment)
  } catch {
    // Nothing was kept.
  }
}

function kept(payment: string): string | undefined {
  try {
    return sessionStorage.getItem(prefix + payment) ?? undefined
  } catch {
    return undefined
  }
}
