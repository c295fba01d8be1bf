import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { type SignedInMember, signInMember } from '../../test/support/people.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { siteOf } from '../http/origin.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { createManagementKey, type Scope, scopes } from '../identity/management-keys.ts'
import { roles } from '../identity/roles.ts'
import type { Contract } from '../openapi/contract.ts'
import { contracts } from '../openapi/contracts/all.ts'
import { Gate } from './gate.ts'

const suite = serviceSuite({ TRUST_PROXY: '1' })

/**
 * Every route, and the lowest role that may call it with a session; then the scope with which a management key may. `public`, `key` and
 * `operator` are routes to which roles do not apply. A route without a line here fails the test.
 */
const table: Readonly<Record<string, readonly [lowest: string, scope?: Scope]>> = {
  createChatCompletion: ['key'],
  createQuote: ['key'],
  listModels: ['public'],
  getModel: ['public'],
  createPlaygroundCompletion: ['developer'],
  createPlaygroundQuote: ['developer'],
  openStream: ['viewer'],
  exportAccount: ['admin'],
  getSession: ['public'],
  createNonce: ['public'],
  signInWithWallet: ['public'],
  createPasskeyOptions: ['public'],
  registerPasskey: ['public'],
  signInWithPasskey: ['public'],
  signInWithLink: ['public'],
  signInLocally: ['public'],
  signOut: ['public'],
  listSessions: ['viewer'],
  endOtherSessions: ['viewer'],
  endSession: ['viewer'],
  updateAccount: ['admin'],
  closeAccount: ['owner'],
  addWallet: ['viewer'],
  createRemovalChallenge: ['viewer'],
  removeWallet: ['viewer'],
  removePasskey: ['viewer'],
  startDeviceLogin: ['public'],
  pollDeviceLogin: ['public'],
  cancelDeviceLogin: ['public'],
  getDeviceLogin: ['developer'],
  confirmDeviceLogin: ['developer'],
  declineDeviceLogin: ['developer'],
  listRequests: ['viewer', 'usage:read'],
  getRequestTotals: ['viewer', 'usage:read'],
  getRequest: ['viewer', 'usage:read'],
  deleteReplays: ['developer'],
  getUsage: ['viewer', 'usage:read'],
  getOverview: ['viewer', 'usage:read'],
  getOwnKey: ['key'],
  listKeys: ['viewer', 'keys:read'],
  createKey: ['developer', 'keys:write'],
  getKey: ['viewer', 'keys:read'],
  updateKey: ['developer', 'keys:write'],
  rotateKey: ['developer', 'keys:write'],
  revokeKey: ['developer', 'keys:write'],
  listMembers: ['viewer'],
  updateMember: ['admin'],
  removeMember: ['admin'],
  leaveAccount: ['viewer'],
  updatePerson: ['viewer'],
  switchAccount: ['viewer'],
  listInvitations: ['admin'],
  createInvitation: ['admin'],
  revokeInvitation: ['admin'],
  findInvitation: ['public'],
  acceptInvitation: ['viewer'],
  listAccountLog: ['admin', 'log:read'],
  listManagementKeys: ['admin'],
  createManagementKey: ['admin'],
  getManagementKey: ['admin'],
  updateManagementKey: ['admin'],
  rotateManagementKey: ['admin'],
  revokeManagementKey: ['admin'],
  listAlerts: ['viewer'],
  listAlertRules: ['viewer'],
  setAlertRule: ['admin'],
  getAlertEmail: ['admin'],
  setAlertEmail: ['admin'],
  removeAlertEmail: ['admin'],
  verifyAlertEmail: ['admin'],
  listWebhooks: ['admin', 'webhooks:read'],
  createWebhook: ['admin', 'webhooks:write'],
  getWebhook: ['admin', 'webhooks:read'],
  updateWebhook: ['admin', 'webhooks:write'],
  rotateWebhook: ['admin', 'webhooks:write'],
  removeWebhook: ['admin', 'webhooks:write'],
  testWebhook: ['admin', 'webhooks:write'],
  listWebhookDeliveries: ['admin', 'webhooks:read'],
  resendWebhookDelivery: ['admin', 'webhooks:write'],
  getBalance: ['viewer', 'usage:read'],
  listDeposits: ['viewer', 'usage:read'],
  listWithdrawals: ['viewer', 'usage:read'],
  listAdjustments: ['viewer', 'usage:read'],
  createWithdrawal: ['owner'],
  createWalletRefund: ['owner'],
  setOwner: ['owner'],
  createOwnerChallenge: ['owner'],
  getStatement: ['viewer', 'usage:read'],
  requestTestMoney: ['developer'],
  mineBlocks: ['developer'],
  failNextCall: ['developer'],
  slowModel: ['developer'],
  resetSandbox: ['owner'],
  getReceipt: ['public'],
  exportReceipts: ['viewer', 'usage:read'],
  getLiabilityProof: ['viewer', 'usage:read'],
  getSolvency: ['public'],
  getStatus: ['public'],
  createPaidCompletion: ['wallet'],
  createPaidQuote: ['public'],
  listPaidModels: ['public'],
  getWalletBalance: ['wallet'],
  getWalletLiabilityProof: ['wallet'],
  createRefund: ['wallet'],
  listOperatorAccounts: ['operator'],
  getOperatorRevenue: ['operator'],
  getOperatorHealth: ['operator'],
}

const rankOf = (role: string) => (roles as readonly string[]).indexOf(role)
const ofRoles = contracts.filter(({ operation }) => rankOf(table[operation]?.[0] ?? '') >= 0)

type Team = { readonly account: AccountRef; readonly members: ReadonlyMap<string, SignedInMember> }

let made: Promise<Team> | undefined

/** An account with a member of each role, made by the first test that needs it. */
function openTeam(): Promise<Team> {
  made ??= (async () => {
    const { id: accountId, partition } = await suite.service.openAccount('1')
    const account = { partition, accountId }
    const members = new Map<string, SignedInMember>()
    for (const role of roles) members.set(role, await signInMember(suite.service, account, role))
    return { account, members }
  })()
  return made
}

/** A service with a stopped clock and rate limits of its own, so that every route can be called. */
function openGate(): Gate {
  const { database, origin } = suite.service
  const keys = new KeyFinder({ database, now: () => 0 })
  const site = siteOf(origin)
  return new Gate({ database, keys, site, isSandbox: true, isOperator: async () => false, now: () => 0 })
}

async function decision(gate: Gate, contract: Contract, headers: Readonly<Record<string, string>>): Promise<string> {
  const { origin } = suite.service
  const sent: Record<string, string> = { origin, host: new URL(origin).host, ...headers }
  const visitor = { header: (name: string) => sent[name], address: '192.0.2.1', network: '192.0.2.1', isLocal: false }
  try {
    await gate.admit(contract, visitor)
    return 'allowed'
  } catch (error) {
    return (error as { code?: string }).code ?? String(error)
  }
}

test('every route is in the table of roles, with what its contract says', () => {
  const said = contracts.map(({ operation, access, role, scope }) => [operation, [role ?? access, scope]])
  const wanted = Object.entries(table).map(([operation, [lowest, scope]]) => [operation, [lowest, scope]])
  assert.deepEqual(Object.fromEntries(said), Object.fromEntries(wanted))
})

test('each role may call the routes of its own and of lower roles, and no other', async () => {
  const { members } = await openTeam()
  for (const role of roles) {
    const gate = openGate()
    const { cookie } = members.get(role)!
    for (const contract of ofRoles) {
      const isAllowed = rankOf(role) >= rankOf(table[contract.operation]![0])
      const decided = await decision(gate, contract, { cookie: cookie! })
      assert.equal(decided, isAllowed ? 'allowed' : 'role_required', `${role} ${contract.operation}`)
    }
  }
})

test('a refusal over HTTP names the role, and nothing is changed by it', async () => {
  const { members } = await openTeam()
  for (const role of roles) {
    const refused = ofRoles.filter(({ operation }) => rankOf(role) < rankOf(table[operation]![0]))
    for (const contract of refused) {
      const path = contract.path.replace(/\{\w+\}/g, randomUUID())
      const body = contract.method === 'GET' ? undefined : {}
      const answer = await members.get(role)!.send(contract.method, path, body)
      const { error } = (await answer.json()) as { error: { code: string; message: string } }
      assert.deepEqual([answer.status, error.code], [403, 'role_required'], `${role} ${contract.operation}`)
      assert.match(error.message, new RegExp(`Your role in this account is ${role}\\.`))
    }
  }
})

test('each scope opens its routes to a management key, and no other', async () => {
  const { database } = suite.service
  const { account, members } = await openTeam()
  const { personId: madeBy } = members.get('admin')!
  for (const scope of scopes) {
    const gate = openGate()
    const { secret } = await database.transaction((connection) =>
      createManagementKey(connection, account, { name: scope, scopes: [scope], expiresAt: undefined, madeBy }),
    )
    for (const contract of ofRoles) {
      const needed = table[contract.operation]![1]
      const isAllowed = needed === scope || needed === scope.replace('write', 'read')
      const decided = await decision(gate, contract, { authorization: `Bearer ${secret}` })
      assert.equal(decided, isAllowed ? 'allowed' : 'scope_required', `${scope} ${contract.operation}`)
    }
  }
})

test('objects of another account are absent for its owner, its admin and a management key', async () => {
  const { service } = suite
  const { account, members } = await openTeam()
  const other = await service.openAccount('1')
  const stranger = await signInMember(service, { ...other, accountId: other.id }, 'owner')
  const owner = members.get('owner')!
  const key = await owner.post('/api/keys', { name: 'foreign' })
  const webhook = await owner.post('/api/webhooks', { url: 'https://example.com/hook', types: ['key.created'] })
  const invitation = await owner.post('/api/invitations', { role: 'viewer' })
  const management = await owner.post('/api/management-keys', { name: 'foreign', scopes: ['keys:read'] })
  const own = await stranger.post('/api/management-keys', { name: 'own', scopes: ['keys:write', 'webhooks:write'] })
  const foreign: readonly (readonly [string, string, unknown?])[] = [
    ['GET', `/api/keys/${key.id}`],
    ['PATCH', `/api/keys/${key.id}`, { name: 'mine' }],
    ['POST', `/api/keys/${key.id}/rotate`, {}],
    ['DELETE', `/api/keys/${key.id}`],
    ['GET', `/api/webhooks/${webhook.id}`],
    ['PATCH', `/api/webhooks/${webhook.id}`, { description: 'mine' }],
    ['POST', `/api/webhooks/${webhook.id}/rotate`, {}],
    ['POST', `/api/webhooks/${webhook.id}/test`, {}],
    ['GET', `/api/webhooks/${webhook.id}/deliveries`],
    ['DELETE', `/api/webhooks/${webhook.id}`],
  ]
  const forPeople: typeof foreign = [
    ['PATCH', `/api/members/${owner.personId}`, { role: 'viewer' }],
    ['DELETE', `/api/members/${owner.personId}`],
    ['DELETE', `/api/invitations/${invitation.id}`],
    ['GET', `/api/management-keys/${management.id}`],
    ['PATCH', `/api/management-keys/${management.id}`, { name: 'mine' }],
    ['POST', `/api/management-keys/${management.id}/rotate`, {}],
    ['DELETE', `/api/management-keys/${management.id}`],
    ['POST', '/api/session/account', { account_id: account.accountId }],
    ['DELETE', `/api/sessions/${(await owner.get('/api/session')).session.id}`],
    ['POST', '/api/quote', { key_id: key.id, messages: [{ role: 'user', content: 'hi' }] }],
  ]
  for (const [method, path, body] of [...foreign, ...forPeople])
    assert.deepEqual(await stranger.refusal(method, path, body), [404, 'not_found'], `${method} ${path}`)
  const authorization = { authorization: `Bearer ${own.secret}` }
  for (const [method, path, body] of foreign)
    assert.deepEqual(await stranger.refusal(method, path, body, authorization), [404, 'not_found'], `${method} ${path}`)
  assert.equal((await owner.get(`/api/keys/${key.id}`)).name, 'foreign')
})
