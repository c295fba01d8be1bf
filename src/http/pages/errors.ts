import { type ErrorCode, errorCodes } from '../../errors.ts'
import { answerOf } from '../error-response.ts'

/** What a code means and what to do about it. A new code does not compile until it is explained here. */
const explanations: Readonly<Record<ErrorCode, readonly [cause: string, remedy: string]>> = {
  invalid_json: [
    'The body is not a JSON object, or is nested too deeply. The message names the place unless the body is long.',
    'Send a JSON object.',
  ],
  invalid_value: ['A parameter has a value that cannot be used; `param` names the place.', 'Correct it.'],
  missing_required_parameter: ['A parameter that is needed is not there; `param` names it.', 'Add it.'],
  unsupported_parameter: ['A parameter asks for something that is not offered.', 'Leave it out.'],
  unsupported_content: ['A message has a part that is not text, such as an image or sound.', 'Send text.'],
  context_length_exceeded: [
    'The conversation is longer than the model can read.',
    'Shorten it, or take another model.',
  ],
  web_search_unavailable: ['`web_search` was asked for, but this service has no search provider.', 'Leave it out.'],
  invalid_api_key: ['There is no key, or it is not one of this service’s.', 'Send `Authorization: Bearer penny_…`.'],
  api_key_expired: ['The key’s time is over.', 'Make another one.'],
  api_key_revoked: ['The key was revoked, or is disabled.', 'Enable it, or make another one.'],
  account_suspended: [
    'The operator has suspended the account. Nothing was held.',
    'Ask the operator; the balance can be withdrawn.',
  ],
  session_required: ['This needs a dashboard session; an API key does not open it.', 'Sign in.'],
  sign_in_failed: ['The signature, passkey or link proves nothing, or was used already.', 'Start the sign-in again.'],
  recent_sign_in_required: [
    'Moving money, or changing who may sign in, needs a sign-in of the last 15 minutes.',
    'Sign in again, then repeat it.',
  ],
  insecure_connection: [
    'Signing in over plain http would show the session to everybody on the way.',
    'Use https, or `http://localhost` on the machine itself.',
  ],
  cross_site_request: ['A page of another place sent this with the session’s cookie.', 'Use the dashboard itself.'],
  key_limit_exceeded: [
    'The request may cost more than the key may still spend in its window.',
    'Raise the limit, or ask for at most `affordable_max_tokens`.',
  ],
  insufficient_balance: [
    'The request may cost more than the account can spend. Nothing was held. `held` is what running requests hold: it comes back as they end, less what they cost.',
    'Deposit USDC, wait for running requests, or ask for at most `affordable_max_tokens`.',
  ],
  model_not_found: [
    'There is no model of this name; another one is never taken instead.',
    'Take a name from `GET /v1/models`.',
  ],
  request_not_found: [
    'No request of this id belongs to the account.',
    'Take the id from the `x-router-request-id` header.',
  ],
  not_found: ['The account has nothing of this id.', 'Take the id from the list that it is in.'],
  unknown_url: ['There is nothing at this address.', 'The base address ends in `/v1`.'],
  method_not_allowed: ['The address is right, the method is not.', 'Use one of the methods in the `allow` header.'],
  request_timeout: ['The body did not arrive in time.', 'Send it again.'],
  account_not_closable: [
    'An account is closed when nothing of it is held, on its way, or worth withdrawing. The message has the numbers.',
    'Withdraw what is left, then close it.',
  ],
  body_too_large: ['The body is larger than is read.', 'Shorten the conversation.'],
  unsupported_media_type: ['The body is not sent as JSON.', 'Send `content-type: application/json`.'],
  idempotency_mismatch: [
    'The `Idempotency-Key` was used with another body within the last 24 hours.',
    'Use a new key.',
  ],
  rate_limited: [
    'Too many requests from one address or session, too many open withdrawals, or an account that uses its whole share of the service.',
    'Slow down, or wait until requests of the account have ended; for withdrawals, until one of them has been paid.',
  ],
  in_flight_cap: [
    'Requests that are still running hold too much of the account’s money for one more.',
    'Wait a moment: it clears as they end. Asking for fewer `max_tokens` holds less.',
  ],
  quote_exceeds_cap: [
    'This request alone may cost more than may be held at once: waiting cannot help.',
    'Ask for at most `affordable_max_tokens`.',
  ],
  upstream_error: ['The model failed. Without output nothing is charged.', 'Try again.'],
  upstream_timeout: [
    'The model did not answer in time. Without output nothing is charged.',
    'Try again, or ask for less.',
  ],
  overloaded: [
    'The service or the model is at its limit, the service is restarting, or its quota at the model provider is used up.',
    'Wait for `retry-after` and try again.',
  ],
  settlement_delayed: ['Too much of the account’s money waits to be settled on chain.', 'Wait; it clears by itself.'],
  ledger_frozen: ['The books are being checked, and no new request is taken.', 'Try again later.'],
  internal_error: ['A mistake of ours.', 'Write to us with the request’s id.'],
}

/** Codes of requests that no answer carries: they stand in the request log, which links here. */
export const rowCodes = ['cancel_allowance_spent', 'interrupted', 'superseded'] as const

const rowExplanations: Readonly<Record<(typeof rowCodes)[number], string>> = {
  cancel_allowance_spent:
    'The client left after the model had accepted the request and before any output. That is free 20 times an hour and for up to 0.10 USDC an hour per account; this request came after that and was charged its input. Wait for the first token before cancelling, or raise the timeout of the client.',
  interrupted:
    'The service stopped while the request ran. What had provably been produced was charged; the rest of the hold went back.',
  superseded:
    'The attempt was repeated, by the SDK or under its `Idempotency-Key`, and the retry was answered. The attempt was refunded, at most what the retry was charged; its status is what it was.',
}

/** The page that the `doc_url` of every error points at, as Markdown: a page of the documentation like the others. */
export function errorsMarkdown(): string {
  const sections = errorCodes.map((code) => {
    const [cause, remedy] = explanations[code]
    const { status, retried } = answerOf(code)
    return `## \`${code}\` · ${status} {#${code}}

${cause}

**What to do:** ${remedy} ${retried ? 'SDKs try again by themselves.' : 'Sending the same again does not help.'}
`
  })
  return `# Errors

Every error has OpenAI’s envelope: \`{"error": {"message", "type", "param", "code", "request_id", "doc_url"}}\`. The
\`code\` is permanent. A refusal before a hold charges nothing; what became of a request that was held is at
\`/api/requests/{id}\`.

${sections.join('\n')}
${rowCodes.map((code) => `## \`${code}\` · in the request log {#${code}}\n\n${rowExplanations[code]}\n`).join('\n')}`
}
