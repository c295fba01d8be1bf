import type { Answer } from './routes.ts'

// Types of the service's responses, under the names that the pages use.

export type Session = Answer<'getSession'>
export type Account = NonNullable<Session['account']>
export type Balance = Answer<'getBalance'>
export type Overview = Answer<'getOverview'>
export type LedgerRequest = Answer<'getRequest'>
export type RequestTotals = Answer<'getRequestTotals'>
export type Key = Answer<'listKeys'>['data'][number]
export type KeyWithSecret = Answer<'createKey'>
export type DeviceLogin = Answer<'getDeviceLogin'>
export type Webhook = Answer<'listWebhooks'>['data'][number]
export type WebhookDelivery = Answer<'listWebhookDeliveries'>['data'][number]
export type Member = Answer<'listMembers'>['data'][number]
export type ManagementKey = Answer<'listManagementKeys'>['data'][number]
export type LogEntry = Answer<'listAccountLog'>['data'][number]
export type Deposit = Answer<'listDeposits'>['data'][number]
export type Withdrawal = Answer<'listWithdrawals'>['data'][number]
export type Adjustment = Answer<'listAdjustments'>['data'][number]
export type Statement = Answer<'getStatement'>
export type Usage = Answer<'getUsage'>
export type Measures = Usage['total']
export type Model = Answer<'listModels'>['data'][number]
export type StreamEvent = Answer<'openStream'>
export type OperatorAccount = Answer<'listOperatorAccounts'>['data'][number]
export type OperatorRevenue = Answer<'getOperatorRevenue'>
export type OperatorHealth = Answer<'getOperatorHealth'>
export type AlertRule = Answer<'setAlertRule'>
export type AlertEmail = Answer<'getAlertEmail'>
