// Why a request was refused or failed, and what to do: in the dashboard's own words, by the permanent code.

export type Explanation = {
  readonly cause: string
  readonly remedy: string
  /** A page of the dashboard where it can be done. */
  readonly to?: '/funds' | '/keys' | '/playground'
}

const explanations: Readonly<Record<string, Explanation>> = {
  invalid_json: {
    cause: 'The request body was not valid JSON.',
    remedy: 'Send a JSON object with content-type application/json.',
  },
  invalid_value: {
    cause: 'A parameter had an invalid value.',
    remedy: 'See “param” in the error response.',
  },
  missing_required_parameter: {
    cause: 'A required parameter was missing.',
    remedy: 'See “param” in the error response.',
  },
  unsupported_parameter: { cause: 'A parameter is not supported.', remedy: 'Remove it.' },
  unsupported_content: { cause: 'A message contained something other than text.', remedy: 'Send text only.' },
  context_length_exceeded: {
    cause: 'The conversation is longer than the model’s context window.',
    remedy: 'Shorten it.',
  },
  web_search_unavailable: {
    cause: 'web_search was requested, but no search provider is configured.',
    remedy: 'Remove it.',
  },
  model_not_found: {
    cause: 'Unknown model. We never substitute another one.',
    remedy: 'Use a name from /v1/models.',
  },
  key_limit_exceeded: {
    cause: 'The request could have exceeded the key’s limit.',
    remedy: 'Raise the limit, wait for its reset, or lower max_tokens.',
    to: '/keys',
  },
  insufficient_balance: {
    cause: 'The request could have cost more than the available balance.',
    remedy: 'Deposit USDC or lower max_tokens.',
    to: '/funds',
  },
  in_flight_cap: {
    cause: 'With this request, running requests would have held more than the maximum.',
    remedy: 'Wait for them to finish, or lower max_tokens.',
  },
  quote_exceeds_cap: {
    cause: 'This request alone could have cost more than the maximum hold.',
    remedy: 'Lower max_tokens. Waiting does not help.',
  },
  idempotency_mismatch: {
    cause: 'The Idempotency-Key was already used with a different body.',
    remedy: 'Use a new key for a new request.',
  },
  upstream_error: { cause: 'The model failed.', remedy: 'Try again. You are not charged when there is no output.' },
  upstream_timeout: { cause: 'The model did not answer in time.', remedy: 'Try again, or request less output.' },
  overloaded: {
    cause: 'The service or the model was overloaded, or the service was restarting.',
    remedy: 'Wait a moment and try again.',
  },
  settlement_delayed: {
    cause: 'Too many charges of the account are not settled on chain yet.',
    remedy: 'It resolves automatically.',
  },
  ledger_frozen: { cause: 'The ledger is being checked; new requests are paused.', remedy: 'Try again later.' },
  cancel_allowance_spent: {
    cause: 'You cancelled before any output, and the free cancels of this hour were used up.',
    remedy: 'You were charged for the input. Wait for the first token before cancelling.',
  },
  interrupted: {
    cause: 'The service stopped while this request ran.',
    remedy: 'You were charged for the recorded output, or nothing.',
  },
  account_suspended: {
    cause: 'The operator suspended the account.',
    remedy: 'Contact the operator. You can still withdraw the balance.',
    to: '/funds',
  },
  model_not_allowed: {
    cause: 'The key may not use this model.',
    remedy: 'Use one of its models, or edit the key.',
    to: '/keys',
  },
  web_tools_not_allowed: {
    cause: 'The request asked for web tools, which the key does not allow.',
    remedy: 'Leave web_search and web_fetch out, or edit the key.',
    to: '/keys',
  },
  quote_exceeds_key_cap: {
    cause: 'The request could have cost more than the key allows per request.',
    remedy: 'Send web_search: false, lower max_tokens, or raise the cap.',
    to: '/keys',
  },
  ip_not_allowed: {
    cause: 'The key may not be used from the address that sent this.',
    remedy: 'Use an allowed address, or edit the key.',
    to: '/keys',
  },
  api_key_expired: { cause: 'The key had expired.', remedy: 'Create a new key or extend its expiry.', to: '/keys' },
  api_key_revoked: {
    cause: 'The key was revoked, rotated or disabled.',
    remedy: 'Use the new secret, enable the key, or create a new one.',
    to: '/keys',
  },
  internal_error: { cause: 'Internal error.', remedy: 'Contact support with the request id.' },
}

/** The codes that a request in the log can have. */
export const errorCodes: readonly string[] = Object.keys(explanations).sort()

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
  api_key_revoked: {
    cause: 'The key was revoked or disabled.',
    remedy: 'Enable it, or create a new key.',
    to: '/keys',
  },
}

export function explainCode(code: string, isWalletAccount = false): Explanation {
  return (
    (isWalletAccount ? ofWallets[code] : undefined) ??
    explanations[code] ?? { cause: `The request failed with error ${code}.`, remedy: 'See the error list in the docs.' }
  )
}
