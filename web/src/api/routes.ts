import type { AnswerOf, Contract } from '../../../src/openapi/contract.ts'
import type { alertContracts } from '../../../src/openapi/contracts/alerts.ts'
import type { chatContracts } from '../../../src/openapi/contracts/chat.ts'
import type { deviceContracts } from '../../../src/openapi/contracts/devices.ts'
import type { fundsContracts } from '../../../src/openapi/contracts/funds.ts'
import type { keyContracts } from '../../../src/openapi/contracts/keys.ts'
import type { managementKeyContracts } from '../../../src/openapi/contracts/management-keys.ts'
import type { memberContracts } from '../../../src/openapi/contracts/members.ts'
import type { operatorContracts } from '../../../src/openapi/contracts/operator.ts'
import type { requestContracts } from '../../../src/openapi/contracts/requests.ts'
import type { signInContracts } from '../../../src/openapi/contracts/sign-in.ts'
import type { statusContracts } from '../../../src/openapi/contracts/status.ts'
import type { usageContracts } from '../../../src/openapi/contracts/usage.ts'
import type { webhookContracts } from '../../../src/openapi/contracts/webhooks.ts'

// The service's own contracts, as types alone: nothing of the server, and no schema library, gets into the browser.

type Contracts = typeof alertContracts &
  typeof chatContracts &
  typeof deviceContracts &
  typeof fundsContracts &
  typeof keyContracts &
  typeof managementKeyContracts &
  typeof memberContracts &
  typeof operatorContracts &
  typeof requestContracts &
  typeof signInContracts &
  typeof statusContracts &
  typeof usageContracts &
  typeof webhookContracts

export type Operation = keyof Contracts
export type Answer<Name extends Operation> = AnswerOf<Contracts[Name]>

/** Input of a call. Fields with a default on the server are optional. */
export type Input<Name extends Operation> = Part<Name, 'parameters'> & Part<Name, 'query'> & Part<Name, 'body'>

type Part<Name extends Operation, Where extends keyof Contract> = Where extends keyof Contracts[Name]
  ? { [Key in Where]: InputOf<Contracts[Name][Where]> }
  : { [Key in Where]?: undefined }

type InputOf<Schema> = Schema extends { _zod: { input: infer Given } } ? Given : undefined

/** Where each operation is. A path or method that is not the contract's does not compile. */
export const routes: { readonly [Name in Operation]: readonly [Contracts[Name]['method'], Contracts[Name]['path']] } = {
  listAlerts: ['GET', '/api/alerts'],
  listAlertRules: ['GET', '/api/alerts/rules'],
  setAlertRule: ['PUT', '/api/alerts/rules/{kind}'],
  getAlertEmail: ['GET', '/api/alerts/email'],
  setAlertEmail: ['PUT', '/api/alerts/email'],
  removeAlertEmail: ['DELETE', '/api/alerts/email'],
  verifyAlertEmail: ['POST', '/api/alerts/email/verify'],
  listWebhooks: ['GET', '/api/webhooks'],
  createWebhook: ['POST', '/api/webhooks'],
  getWebhook: ['GET', '/api/webhooks/{id}'],
  updateWebhook: ['PATCH', '/api/webhooks/{id}'],
  rotateWebhook: ['POST', '/api/webhooks/{id}/rotate'],
  removeWebhook: ['DELETE', '/api/webhooks/{id}'],
  testWebhook: ['POST', '/api/webhooks/{id}/test'],
  listWebhookDeliveries: ['GET', '/api/webhooks/{id}/deliveries'],
  resendWebhookDelivery: ['POST', '/api/webhooks/{id}/deliveries/{event}/resend'],
  listMembers: ['GET', '/api/members'],
  updateMember: ['PATCH', '/api/members/{id}'],
  removeMember: ['DELETE', '/api/members/{id}'],
  leaveAccount: ['DELETE', '/api/membership'],
  updatePerson: ['PATCH', '/api/person'],
  switchAccount: ['POST', '/api/session/account'],
  listInvitations: ['GET', '/api/invitations'],
  createInvitation: ['POST', '/api/invitations'],
  revokeInvitation: ['DELETE', '/api/invitations/{id}'],
  findInvitation: ['POST', '/api/auth/invitation'],
  acceptInvitation: ['POST', '/api/auth/invitation/accept'],
  listAccountLog: ['GET', '/api/log'],
  listManagementKeys: ['GET', '/api/management-keys'],
  createManagementKey: ['POST', '/api/management-keys'],
  getManagementKey: ['GET', '/api/management-keys/{id}'],
  updateManagementKey: ['PATCH', '/api/management-keys/{id}'],
  rotateManagementKey: ['POST', '/api/management-keys/{id}/rotate'],
  revokeManagementKey: ['DELETE', '/api/management-keys/{id}'],
  createChatCompletion: ['POST', '/v1/chat/completions'],
  createQuote: ['POST', '/v1/quote'],
  listModels: ['GET', '/v1/models'],
  getModel: ['GET', '/v1/models/{id}'],
  createPlaygroundCompletion: ['POST', '/api/playground'],
  createPlaygroundQuote: ['POST', '/api/quote'],
  openStream: ['GET', '/api/stream'],
  exportAccount: ['GET', '/api/export'],
  getBalance: ['GET', '/api/balance'],
  listDeposits: ['GET', '/api/deposits'],
  listWithdrawals: ['GET', '/api/withdrawals'],
  listAdjustments: ['GET', '/api/adjustments'],
  createWithdrawal: ['POST', '/api/withdrawals'],
  createWalletRefund: ['POST', '/api/refunds'],
  setOwner: ['PUT', '/api/owner'],
  createOwnerChallenge: ['POST', '/api/owner/challenge'],
  getStatement: ['GET', '/api/statement'],
  requestTestMoney: ['POST', '/api/faucet'],
  mineBlocks: ['POST', '/api/sandbox/mine'],
  failNextCall: ['POST', '/api/sandbox/fail-next'],
  slowModel: ['POST', '/api/sandbox/slow'],
  resetSandbox: ['POST', '/api/sandbox/reset'],
  getReceipt: ['GET', '/api/receipts/{id}'],
  exportReceipts: ['GET', '/api/receipts'],
  getLiabilityProof: ['GET', '/api/liabilities/proof'],
  getSolvency: ['GET', '/api/solvency'],
  getStatus: ['GET', '/api/status'],
  listKeys: ['GET', '/api/keys'],
  createKey: ['POST', '/api/keys'],
  getKey: ['GET', '/api/keys/{id}'],
  getOwnKey: ['GET', '/api/key'],
  updateKey: ['PATCH', '/api/keys/{id}'],
  rotateKey: ['POST', '/api/keys/{id}/rotate'],
  revokeKey: ['DELETE', '/api/keys/{id}'],
  listRequests: ['GET', '/api/requests'],
  getRequestTotals: ['GET', '/api/requests/totals'],
  getRequest: ['GET', '/api/requests/{id}'],
  deleteReplays: ['DELETE', '/api/replays'],
  getSession: ['GET', '/api/session'],
  createNonce: ['POST', '/api/auth/nonce'],
  signInWithWallet: ['POST', '/api/auth/wallet'],
  createPasskeyOptions: ['POST', '/api/auth/passkey/options'],
  registerPasskey: ['POST', '/api/auth/passkey/register'],
  signInWithPasskey: ['POST', '/api/auth/passkey/verify'],
  signInWithLink: ['POST', '/api/auth/link'],
  signInLocally: ['POST', '/api/auth/local'],
  signOut: ['POST', '/api/auth/logout'],
  startDeviceLogin: ['POST', '/api/auth/device'],
  pollDeviceLogin: ['POST', '/api/device/poll'],
  cancelDeviceLogin: ['POST', '/api/device/cancel'],
  getDeviceLogin: ['GET', '/api/device/{code}'],
  confirmDeviceLogin: ['POST', '/api/device/{code}/confirm'],
  declineDeviceLogin: ['POST', '/api/device/{code}/decline'],
  listSessions: ['GET', '/api/sessions'],
  endOtherSessions: ['DELETE', '/api/sessions'],
  endSession: ['DELETE', '/api/sessions/{id}'],
  updateAccount: ['PATCH', '/api/account'],
  closeAccount: ['DELETE', '/api/account'],
  addWallet: ['POST', '/api/wallets'],
  createRemovalChallenge: ['POST', '/api/removal-challenge'],
  removeWallet: ['DELETE', '/api/wallets/{address}'],
  removePasskey: ['DELETE', '/api/passkeys/{id}'],
  getUsage: ['GET', '/api/usage'],
  getOverview: ['GET', '/api/overview'],
  listOperatorAccounts: ['GET', '/api/operator/accounts'],
  getOperatorRevenue: ['GET', '/api/operator/revenue'],
  getOperatorHealth: ['GET', '/api/operator/health'],
}
