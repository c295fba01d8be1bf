import { isSameSecret } from '../src/process/same-secret.ts'
import { type Payment, PaymentRefusedError } from './payment.ts'
import { lowerCase } from './terms.ts'

export type AccessOptions = {
  /** Settles only payments to or from these addresses: each one costs the operator gas. */
  readonly payees: readonly string[]
  /** The service's bearer token. */
  readonly token: string
}

/**
 * A payment costs 0.0004 to 0.002 USDC of gas: the most when it is alone in its batch and its nonce and the payee's balance are new.
 * Clients without the token must pay as much.
 */
const publicPaymentMin = 2_000n

/** Decides which callers may do what. The protocol is public; the operator's gas and the customers' payments are not. */
export class Access {
  readonly #payees: ReadonlySet<string>
  readonly #token: string

  constructor({ payees, token }: AccessOptions) {
    this.#payees = new Set(payees.map(lowerCase))
    this.#token = token
  }

  hasToken(authorization: string | undefined): boolean {
    const [, token] = /^Bearer (.+)$/i.exec(authorization ?? '') ?? []
    return token !== undefined && isSameSecret(token, this.#token)
  }

  /** Customers pay a payee, and a payee returns their credit. Throws `PaymentRefusedError` for all other payments. */
  requireServed({ payer, payee, value }: Payment, authorization: string | undefined): void {
    if (!this.#payees.has(payee) && !this.#payees.has(payer)) throw new PaymentRefusedError('payee_not_allowed', payer)
    if (value < publicPaymentMin && !this.hasToken(authorization)) {
      throw new PaymentRefusedError('amount_too_small', payer)
    }
  }
}
