import { explanations } from '../../../../src/explanations.ts'

// Why a request was refused or failed, and what to do: the texts of the error reference, with the page where it can be done.

export type Explanation = {
  readonly cause: string
  readonly remedy: string
  /** A page of the dashboard where it can be done. */
  readonly to?: '/funds' | '/keys'
}

/** The codes that a request in the log can have. */
export const errorCodes: readonly string[] = [
  'account_suspended api_key_expired api_key_revoked cancel_allowance_spent context_length_exceeded idempotency_mismatch',
  'in_flight_cap insufficient_balance internal_error interrupted invalid_json invalid_value ip_not_allowed key_limit_exceeded',
  'ledger_frozen missing_required_parameter model_not_allowed model_not_found overloaded quote_exceeds_cap quote_exceeds_key_cap',
  'settlement_delayed unsupported_content unsupported_parameter upstream_error upstream_timeout web_search_unavailable',
  'web_tools_not_allowed',
].flatMap((line) => line.split(' '))

const ofKeys =
  /^(key_limit_exceeded|model_not_allowed|web_tools_not_allowed|quote_exceeds_key_cap|ip_not_allowed|api_key_\w+)$/

/** Advice for accounts that pay over x402, where it differs. */
const ofWallets: Readonly<Record<string, Explanation>> = {
  insufficient_balance: {
    cause: 'The request could have cost more than the wallet’s credit.',
    remedy: 'Pay it over x402, use a key of an account with deposits, or lower max_tokens.',
    to: '/funds',
  },
  account_suspended: {
    cause: 'The operator suspended the account.',
    remedy: 'Contact the operator. Credit is not refunded while it is suspended.',
  },
}

export function explainCode(code: string, isWalletAccount = false): Explanation {
  const special = isWalletAccount ? ofWallets[code] : undefined
  const found = Object.entries(explanations).find(([known]) => known === code)?.[1]
  if (special !== undefined || found === undefined)
    return special ?? { cause: `The request failed with error ${code}.`, remedy: 'See the error list in the docs.' }
  const [cause, remedy] = found.map((text) => text.replaceAll('`', '')) as [string, string]
  const to = ofKeys.test(code)
    ? '/keys'
    : /^(insufficient_balance|account_suspended)$/.test(code)
      ? '/funds'
      : undefined
  return { cause, remedy, ...(to !== undefined && { to }) }
}
