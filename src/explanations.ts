import type { ErrorCode } from './errors.ts'

/** Codes that appear only in the request log, which links here, and in no response. */
export const rowCodes = ['cancel_allowance_spent', 'interrupted'] as const

type Explained = ErrorCode | (typeof rowCodes)[number]

/**
 * What a code means and what to do about it, for the documentation and the dashboard. A new code does not compile until it is
 * explained here. Pure, because the browser uses it too.
 */
export const explanations: Readonly<Record<Explained, readonly [cause: string, remedy: string]>> = {
  invalid_json: [
    'The body is not a JSON object, or it is nested too deeply. The message names the position unless the body is long.',
    'Send a JSON object.',
  ],
  invalid_value: ['A parameter has an invalid value. `param` names it.', 'Correct the value.'],
  missing_required_parameter: ['A required parameter is missing. `param` names it.', 'Add the parameter.'],
  unsupported_parameter: [
    'A parameter asks for a feature that this service does not support.',
    'Remove the parameter.',
  ],
  unsupported_content: ['A message has a part that is not text, such as an image or audio.', 'Send text only.'],
  context_length_exceeded: [
    'The conversation is longer than the context of the model.',
    'Shorten it, or use another model.',
  ],
  web_search_unavailable: [
    'The request sets `web_search`, but this service has no search provider.',
    'Remove `web_search`.',
  ],
  invalid_api_key: [
    'The API key is missing or does not exist.',
    'Send `Authorization: Bearer penny_…` with a key of this service.',
  ],
  api_key_expired: ['The API key has expired.', 'Create a new key.'],
  api_key_revoked: [
    'The API key was revoked, rotated or disabled.',
    'Use the new secret, enable the key, or create a new one.',
  ],
  account_suspended: [
    'The operator has suspended the account. Nothing was held.',
    'Contact the operator. You can still withdraw the balance.',
  ],
  model_not_allowed: [
    'The key is restricted to certain models, and this model is not one of them. Nothing was held.',
    'Use one of the models in the message, or change the key’s models.',
  ],
  web_tools_not_allowed: [
    'The request asks for web search or web fetch, but web tools are turned off for the key. Nothing was held.',
    'Remove `web_search` and `web_fetch`, or allow web tools for the key.',
  ],
  quote_exceeds_key_cap: [
    'The request, including its searches, could cost more than the key allows per request. Nothing was held.',
    'Send `web_search: false`, ask for at most `affordable_max_tokens`, shorten the input, or raise the key’s cap.',
  ],
  ip_not_allowed: [
    'The key is restricted to certain IP addresses, and the request came from another one. Nothing was held.',
    'Use the key from an allowed address, or change the key’s allowed addresses.',
  ],
  session_required: ['This route needs a dashboard session. An API key is not enough.', 'Sign in.'],
  sign_in_failed: ['The signature, passkey or link is invalid, expired or already used.', 'Start the sign-in again.'],
  recent_sign_in_required: [
    'You must have signed in within the last 15 minutes to move money or to change account access.',
    'Sign in again, then repeat the action.',
  ],
  role_required: [
    'Your role in this account does not allow this. The message names the role that it needs. Nothing was changed.',
    'Ask an owner or admin of the account to do it, or to give you that role.',
  ],
  scope_required: [
    'The management key does not have the scope that this route needs, or the route is for people only. Nothing was changed.',
    'Give the key the scope in the message, or sign in.',
  ],
  account_switched: [
    'You switched to another account in another window, or another person signed in there, and this window still shows the earlier one. Nothing was changed.',
    'Reload the page. To change the earlier account, switch back to it first.',
  ],
  already_member: [
    'You are already a member of the account in this invitation. The invitation was not used.',
    'Switch to the account. Forward the link to the intended person.',
  ],
  last_owner: [
    'The last owner of an account cannot leave it, be removed or get another role.',
    'Make another member owner first.',
  ],
  member_limit_exceeded: [
    'The limits of this member’s keys together would exceed the member’s spending limit. Nothing was changed.',
    'Lower the limit of a key, or ask an admin to raise the member’s limit.',
  ],
  insecure_connection: [
    'Signing in over plain http would expose the session to the network.',
    'Use https, or `http://localhost` on the machine itself.',
  ],
  cross_site_request: ['Another website sent this request with your session cookie.', 'Use the dashboard.'],
  key_limit_exceeded: [
    'The request may cost more than the remaining limit of the key.',
    'Raise the limit, or ask for at most `affordable_max_tokens`.',
  ],
  insufficient_balance: [
    'The request may cost more than the available balance. Nothing was held. `held` is reserved by running requests; the unused part returns when they end.',
    'Deposit USDC, wait for running requests, or ask for at most `affordable_max_tokens`.',
  ],
  payment_required: [
    'A request to `/x402/v1` had no payment. The `PAYMENT-REQUIRED` header has the amount. If the wallet signs in, its credit lowers the amount.',
    'Use an x402 client, which pays and repeats the request by itself.',
  ],
  payment_invalid: [
    'The payment in `PAYMENT-SIGNATURE` cannot be accepted; `reason` says why. Nothing was paid. `payment_used`: it was already used.',
    'Send the request without a payment, then sign a new payment for the amount in the 402. With `insufficient_balance`, deposit USDC at the gateway first.',
  ],
  payment_unknown: [
    'The gateway did not say whether it accepted the payment.',
    'Send the same payment again in half a minute, or read `GET /x402/v1/balance`: an accepted payment becomes credit of the wallet.',
  ],
  model_not_found: ['Unknown model. We never substitute another one.', 'Use a model from `GET /v1/models`.'],
  request_not_found: ['The account has no request with this id.', 'Use the id from the `x-router-request-id` header.'],
  request_archived: [
    'The operator has archived the month of this request and removed its requests from the service.',
    'Use the totals in usage and statements, which remain. Exported receipts stay valid. Ask the operator for the archived request.',
  ],
  not_found: ['No such object in this account.', 'Check the id.'],
  unknown_url: ['This URL does not exist.', 'Check the base URL: it ends in `/v1`.'],
  method_not_allowed: ['The URL exists, but it does not allow this method.', 'Use a method from the `allow` header.'],
  request_timeout: ['The request body did not arrive in time.', 'Send the request again.'],
  account_not_closable: [
    'An account can be closed only when it has no holds, no pending transfers and no balance to withdraw. The message has the amounts.',
    'Withdraw the balance, then close the account.',
  ],
  body_too_large: ['The request body is too large.', 'Shorten the conversation.'],
  unsupported_media_type: ['The request body is not declared as JSON.', 'Send `content-type: application/json`.'],
  idempotency_mismatch: [
    'The `Idempotency-Key` was used with another body within the last 24 hours, or the id of a withdrawal or refund was used with other values.',
    'Use a new key or id.',
  ],
  rate_limited: [
    'Too many requests from one IP address or session, more than 50 refused requests or quotes a second with one API key, too many open withdrawals, or the account uses its whole share of the service.',
    'Slow down, fix the refused requests, or wait until running requests or withdrawals have ended.',
  ],
  in_flight_cap: [
    'Running requests and this one together would hold more than the maximum amount.',
    'Wait until some of them end. A lower `max_tokens` holds less.',
  ],
  quote_exceeds_cap: [
    'The quote of this request alone exceeds the maximum that an account can hold. Waiting does not help.',
    'Lower `max_tokens` to at most `affordable_max_tokens`.',
  ],
  upstream_error: ['The model failed.', 'Try again. Without output nothing is charged.'],
  upstream_timeout: [
    'The model did not answer in time.',
    'Try again, or lower `max_tokens`. Without output nothing is charged.',
  ],
  overloaded: [
    'The service or the model is overloaded, the service is restarting, or its quota at the model provider is exhausted.',
    'Wait for `retry-after` and try again.',
  ],
  settlement_delayed: [
    'Too many charges of the account have not been paid on chain yet, or this machine does not accept x402 payments.',
    'Wait and try again: unpaid charges clear automatically. For x402 payments, the message names the setting that the operator must correct.',
  ],
  ledger_frozen: ['The ledger is being checked, and new requests are paused.', 'Try again later.'],
  internal_error: ['An error on our side.', 'Contact us with the request id.'],
  cancel_allowance_spent: [
    'The client disconnected after the request was sent to the model and before any output. Per hour and account that is free for input worth 0.01 USDC plus 1 % of the earlier charges, at most 0.10 USDC. This request exceeded the allowance, so its input was charged.',
    'Wait for the first token before you cancel, or raise the timeout of the client.',
  ],
  interrupted: [
    'The service stopped while the request was running. The output up to the last checkpoint was charged; the rest of the hold was released.',
    'Send the request again.',
  ],
}
