// Why a request was refused or failed, and what to do: in the dashboard's own words, by the permanent code.

export type Explanation = {
  readonly cause: string
  readonly remedy: string
  /** A page of the dashboard where it can be done. */
  readonly to?: '/funds' | '/keys' | '/playground'
}

const explanations: Readonly<Record<string, Explanation>> = {
  invalid_json: { cause: 'The body was not JSON.', remedy: 'Send a JSON object with content-type application/json.' },
  invalid_value: {
    cause: 'A parameter had a value that cannot be used.',
    remedy: 'The answer’s param names the place.',
  },
  missing_required_parameter: { cause: 'A required parameter was missing.', remedy: 'The answer’s param names it.' },
  unsupported_parameter: { cause: 'A parameter asked for something that is not offered.', remedy: 'Leave it out.' },
  unsupported_content: { cause: 'A message had a part that is not text.', remedy: 'Send text only.' },
  context_length_exceeded: { cause: 'The conversation was longer than the model reads.', remedy: 'Shorten it.' },
  web_search_unavailable: { cause: 'web_search was asked for, and no provider is set up.', remedy: 'Leave it out.' },
  model_not_found: {
    cause: 'There is no model of that name; another is never taken instead.',
    remedy: 'Take a name from /v1/models.',
  },
  key_limit_exceeded: {
    cause: 'The request could have cost more than the key’s limit leaves.',
    remedy: 'Raise the key’s limit, wait for its reset, or ask for fewer max_tokens.',
    to: '/keys',
  },
  insufficient_balance: {
    cause: 'The request could have cost more than the account can spend.',
    remedy: 'Deposit USDC, or ask for fewer max_tokens.',
    to: '/funds',
  },
  in_flight_cap: {
    cause: 'Requests still running held too much of the account’s money.',
    remedy: 'It clears as they end. Fewer max_tokens hold less.',
  },
  quote_exceeds_cap: {
    cause: 'This request alone could have cost more than may be held at once.',
    remedy: 'Ask for fewer max_tokens; waiting does not help.',
  },
  idempotency_mismatch: {
    cause: 'The Idempotency-Key was used before with another body.',
    remedy: 'Use a new key for a new request.',
  },
  upstream_error: { cause: 'The model failed.', remedy: 'Try again. Without output nothing is charged.' },
  upstream_timeout: { cause: 'The model did not answer in time.', remedy: 'Try again, or ask for less.' },
  overloaded: {
    cause: 'The service or the model was at its limit, or the service was restarting.',
    remedy: 'Wait a moment and try again.',
  },
  settlement_delayed: {
    cause: 'Too much of the account’s money waits to be settled on chain.',
    remedy: 'It clears by itself.',
  },
  ledger_frozen: { cause: 'The books are being checked; no new request is taken.', remedy: 'Try again later.' },
  interrupted: {
    cause: 'The service stopped while this request ran.',
    remedy: 'You were charged for what had provably been produced, or nothing.',
  },
  superseded: {
    cause: 'This attempt was repeated, and the retry was answered.',
    remedy: 'What it had cost was given back: you pay for the retry alone. There is nothing to do.',
  },
  account_suspended: {
    cause: 'The operator had suspended the account.',
    remedy: 'Ask the operator; the balance can be withdrawn.',
    to: '/funds',
  },
  api_key_expired: { cause: 'The key’s time was over.', remedy: 'Make another key, or move its expiry.', to: '/keys' },
  api_key_revoked: { cause: 'The key was revoked.', remedy: 'Make another key.', to: '/keys' },
  internal_error: { cause: 'A mistake of ours.', remedy: 'Write to us with the request’s id.' },
}

export function explainCode(code: string): Explanation {
  return explanations[code] ?? { cause: `The service answered ${code}.`, remedy: 'The documentation has every code.' }
}
