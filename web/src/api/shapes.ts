import type { AnswerOf, Contract } from '../../../src/openapi/contract.ts'
import type { AnyContract } from '../../../src/openapi/contracts/all.ts'

// The service's own contracts, as types alone: no code of the server, and no schema library, gets into the browser.

/** Each contract under its method and path, such as `GET /api/keys/{id}`. */
type Contracts = { [Exact in AnyContract as `${Exact['method']} ${Exact['path']}`]: Exact }

export type Operation = keyof Contracts
export type Answer<Name extends Operation> = AnswerOf<Contracts[Name]>

/** Input of a call. Fields with a default on the server are optional. */
export type Input<Name extends Operation> = Part<Name, 'parameters'> & Part<Name, 'query'> & Part<Name, 'body'>

type Part<Name extends Operation, Where extends keyof Contract> = Where extends keyof Contracts[Name]
  ? { [Key in Where]: InputOf<Contracts[Name][Where]> }
  : { [Key in Where]?: undefined }

type InputOf<Schema> = Schema extends { _zod: { input: infer Given } } ? Given : undefined

// Answers under the names that the pages use.

export type Session = Answer<'GET /api/session'>
export type Account = NonNullable<Session['account']>
export type Balance = Answer<'GET /api/balance'>
export type Overview = Answer<'GET /api/overview'>
export type LedgerRequest = Answer<'GET /api/requests/{id}'>
export type RequestTotals = Answer<'GET /api/requests/totals'>
export type Key = Answer<'GET /api/keys'>['data'][number]
export type KeyWithSecret = Answer<'POST /api/keys'>
export type DeviceLogin = Answer<'GET /api/device/{code}'>
export type Webhook = Answer<'GET /api/webhooks'>['data'][number]
export type WebhookDelivery = Answer<'GET /api/webhooks/{id}/deliveries'>['data'][number]
export type Member = Answer<'GET /api/members'>['data'][number]
export type ManagementKey = Answer<'GET /api/management-keys'>['data'][number]
export type LogEntry = Answer<'GET /api/log'>['data'][number]
export type Deposit = Answer<'GET /api/deposits'>['data'][number]
export type Withdrawal = Answer<'GET /api/withdrawals'>['data'][number]
export type Adjustment = Answer<'GET /api/adjustments'>['data'][number]
export type Statement = Answer<'GET /api/statement'>
export type Usage = Answer<'GET /api/usage'>
export type Measures = Usage['total']
export type Model = Answer<'GET /v1/models'>['data'][number]
export type StreamEvent = Answer<'GET /api/stream'>
export type OperatorAccount = Answer<'GET /api/operator/accounts'>['data'][number]
export type OperatorRevenue = Answer<'GET /api/operator/revenue'>
export type OperatorHealth = Answer<'GET /api/operator/health'>
export type AlertRule = Answer<'PUT /api/alerts/rules/{kind}'>
export type AlertEmail = Answer<'GET /api/alerts/email'>
