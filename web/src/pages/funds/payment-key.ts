import { keep, readKept } from '../../ui/kept.ts'

const prefix = 'penny.payment.'
const keys = new Map<string, string>()

/**
 * Sends a payment out with its idempotency key. One form is one payment until it is known to be made: the answer to an attempt may have
 * been lost, and a second key would pay again. The tab keeps the key, so that a page that is loaded again still has it.
 */
export async function payOnce<Made>(
  payment: string,
  send: (options: { headers: Record<string, string> }) => Promise<Made>,
): Promise<Made> {
  const name = prefix + payment
  const key = keys.get(payment) ?? readKept('sessionStorage', name) ?? crypto.randomUUID()
  keys.set(payment, key)
  keep('sessionStorage', name, key)
  const made = await send({ headers: { 'idempotency-key': key } })
  // The next submit of this form is a new payment.
  keys.delete(payment)
  keep('sessionStorage', name, null)
  return made
}
