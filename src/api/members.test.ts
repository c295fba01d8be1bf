import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import {
  createWallet,
  DashboardClient,
  type Json,
  signedMessage,
  signInNew,
} from '../../test/support/dashboard-client.ts'
import { Device } from '../../test/support/passkey-device.ts'
import { type SignedInMember, signInMember } from '../../test/support/people.ts'
import { answers, completed, created, text as delta } from '../../test/support/scripted-upstream.ts'
import { postChat } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import { evaluateAccounts } from '../alerts/alerts.ts'
import { deleteOldLogRows } from '../db/account-log.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { lockAccount } from '../db/lock-account.ts'
import { createLoginToken } from '../identity/login-links.ts'
import { addMember, changeMember, type MemberCall, removeMember } from '../identity/members.ts'

const suite = serviceSuite({ TRUST_PROXY: '1' })
const question = { model: 'gpt-5.6-luna', messages: [{ role: 'user', content: 'hi' }] }

async function openAccount(): Promise<{ readonly account: AccountRef; readonly owner: SignedInMember }> {
  const { id: accountId, partition } = await suite.service.openAccount('5')
  const account = { partition, accountId }
  return { account, owner: await signInMember(suite.service, account, 'owner') }
}

async function invite(by: SignedInMember, terms: object): Promise<string> {
  const { url } = await by.post('/api/invitations', terms)
  return new URLSearchParams(new URL(url).hash.slice(1)).get('invitation')!
}

async function refusalOf(client: DashboardClient, method: string, path: string, body?: unknown): Promise<Json> {
  const answer = await client.send(method, path, body)
  return { status: answer.status, ...((await answer.json()) as Json).error }
}

async function logOf(client: DashboardClient): Promise<readonly Json[]> {
  return (await client.get('/api/log?limit=200')).data
}

test('an invited person joins with a new passkey, in the role of the invitation and without an account of their own', async () => {
  const { account, owner } = await openAccount()
  const token = await invite(owner, { role: 'developer' })
  const client = new DashboardClient(suite.service)
  const shown = await client.post('/api/auth/invitation', { token })
  assert.deepEqual([shown.role, shown.invited_by, shown.account_name], ['developer', 'The owner', 'test'])
  const device = new Device()
  const credential = await device.register(client)
  const joined = await client.post('/api/auth/passkey/register', { credential, name: 'Grace', invitation: token })
  assert.equal(joined.account.id, account.accountId)
  assert.deepEqual([joined.person.name, joined.person.role], ['Grace', 'developer'])
  assert.deepEqual(
    joined.person.accounts.map(({ id }: Json) => id),
    [account.accountId],
  )
  const { data } = await owner.get('/api/members')
  assert.deepEqual(
    data.map(({ name, role }: Json) => [name, role]),
    [
      ['The owner', 'owner'],
      ['Grace', 'developer'],
    ],
  )
  assert.ok(data[1].last_active_at)
  const { secret } = await client.post('/api/keys', { name: 'by Grace' })
  assert.equal((await client.refusal('POST', '/api/withdrawals', {}))[1], 'role_required')
  const log = await logOf(owner)
  assert.deepEqual(log.map(({ event, actor }) => [event, actor.name]).reverse(), [
    ['member_invited', 'The owner'],
    ['member_joined', 'Grace'],
    ['signed_in', 'Grace'],
    ['key_created', 'Grace'],
    ['refused', 'Grace'],
  ])
  assert.ok(!JSON.stringify(log).includes(secret) && !JSON.stringify(log).includes(token))
  // Signing in later leads back to this account.
  const later = new DashboardClient(suite.service)
  const back = await later.post('/api/auth/passkey/verify', { credential: await device.signIn(later) })
  assert.equal(back.account.id, account.accountId)
})

test('an invitation is for one person: reused, expired and unknown tokens are refused with the reason', async () => {
  const { account, owner } = await openAccount()
  const token = await invite(owner, { role: 'viewer' })
  const guests = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const client = new DashboardClient(suite.service)
      return { client, signed: await signedMessage(client, createWallet()) }
    }),
  )
  const answers = await Promise.all(
    guests.map(({ client, signed }) => client.send('POST', '/api/auth/wallet', { ...signed, invitation: token })),
  )
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 404, 404, 404, 404, 404])
  const { client: winner } = guests[answers.findIndex(({ status }) => status === 200)]!
  const { client: loser } = guests[answers.findIndex(({ status }) => status === 404)]!
  assert.equal((await loser.get('/api/session')).signed_in, false, 'nobody is let in by a refused invitation')
  assert.equal((await owner.get('/api/members')).data.length, 2)
  // The same person again: a double click, or the link opened later.
  assert.equal((await winner.send('POST', '/api/auth/invitation/accept', { token })).status, 204)

  const late = new DashboardClient(suite.service)
  await late.post('/api/auth/wallet', await signedMessage(late, createWallet()))
  const accept = (given: string) => refusalOf(late, 'POST', '/api/auth/invitation/accept', { token: given })
  assert.match((await accept(token)).message, /was already used/)
  assert.match((await accept('x'.repeat(43))).message, /invalid or was revoked/)
  const revoked = await invite(owner, { role: 'viewer' })
  const { data } = await owner.get('/api/invitations')
  await owner.delete(`/api/invitations/${data[0].id}`)
  assert.match((await accept(revoked)).message, /invalid or was revoked/)
  const expired = await invite(owner, { role: 'viewer' })
  await suite.service.database.query(
    'update invitations set expires_at = clock_timestamp() where account_id = $1 and used_at is null',
    [account.accountId],
  )
  const gone = await accept(expired)
  assert.deepEqual([gone.status, gone.code], [404, 'not_found'])
  assert.match(gone.message, /has expired: an invitation is valid for 7 days/)
})

test('a signed-in person joins a second account, switches between both, and the link of a member is not used up', async () => {
  const { account, owner } = await openAccount()
  const client = new DashboardClient(suite.service)
  const wallet = createWallet()
  const own = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const token = await invite(owner, { role: 'admin' })
  const again = await refusalOf(owner, 'POST', '/api/auth/invitation/accept', { token })
  assert.deepEqual([again.status, again.code], [409, 'already_member'])
  assert.equal((await client.send('POST', '/api/auth/invitation/accept', { token })).status, 204)
  const joined = await client.get('/api/session')
  assert.deepEqual([joined.account.id, joined.person.role], [account.accountId, 'admin'])
  await client.post('/api/session/account', { account_id: own.account.id })
  assert.equal((await client.get('/api/session')).person.role, 'owner')
  await client.post('/api/session/account', { account_id: account.accountId })
  // Confirming with a sign-in stays in the account, and a sign-in elsewhere goes to the one that was used last.
  const confirmed = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.equal(confirmed.account.id, account.accountId)
  // An operator's link opens the account that it names, and not as a person who has other accounts too.
  const [{ partition }] = (await suite.service.database.query<{ partition: number }>(
    'select partition from accounts where id = $1',
    [own.account.id],
  )) as [{ partition: number }]
  const printed = await createLoginToken(suite.service.database, { partition, accountId: own.account.id }, 60)
  const link = new DashboardClient(suite.service)
  const entered = await link.post('/api/auth/link', { token: printed })
  assert.equal(entered.person.role, 'owner')
  assert.deepEqual(
    entered.person.accounts.map(({ id }: Json) => id),
    [own.account.id],
  )
  await client.delete('/api/membership')
  const left = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.equal(left.account.id, own.account.id)
})

test('after a switch of accounts, changes from a window that shows the earlier account are refused', async () => {
  const { account, owner } = await openAccount()
  const client = await signInNew(suite.service)
  const token = await invite(owner, { role: 'owner' })
  const shown = { 'x-router-account': client.accountId }
  await client.post('/api/keys', { name: 'before' }, shown)
  await client.post('/api/auth/invitation/accept', { token }, shown)
  const changes = [
    ['POST', '/api/keys', { name: 'late' }],
    ['POST', '/api/invitations', { role: 'viewer' }],
    ['PATCH', '/api/account', { name: 'late' }],
    ['POST', '/api/playground', question],
  ] as const
  for (const [method, path, body] of changes)
    assert.deepEqual(await client.refusal(method, path, body, shown), [409, 'account_switched'], path)
  assert.deepEqual(await namesOfKeys(client), ['test'])
  await client.post('/api/keys', { name: 'after' }, { 'x-router-account': account.accountId })
  // Switching back and signing out work from any window.
  await client.post('/api/session/account', { account_id: client.accountId }, shown)
  await client.post('/api/auth/logout', {}, { 'x-router-account': account.accountId })
})

test('a session that switches accounts while a body is on its way changes neither account', async (t) => {
  const { owner } = await openAccount()
  const other = await openAccount()
  await suite.service.database.transaction((connection) =>
    addMember(connection, other.account, { personId: owner.personId, role: 'owner' }),
  )
  const upload = await begin(t, owner, ['POST', '/api/keys', { name: 'late' }])
  await owner.post('/api/session/account', { account_id: other.account.accountId })
  assert.deepEqual(await upload.finish(), [409, 'account_switched'])
})

test('members cannot grant a role above their own or change a member above them, and an account keeps an owner', async () => {
  const { account, owner } = await openAccount()
  const admin = await signInMember(suite.service, account, 'admin')
  const viewer = await signInMember(suite.service, account, 'viewer')
  for (const [method, path, body] of [
    ['POST', '/api/invitations', { role: 'owner' }],
    ['PATCH', `/api/members/${viewer.personId}`, { role: 'owner' }],
    ['PATCH', `/api/members/${admin.personId}`, { role: 'owner' }],
    ['PATCH', `/api/members/${owner.personId}`, { role: 'viewer' }],
    ['DELETE', `/api/members/${owner.personId}`, undefined],
  ] as const)
    assert.deepEqual(await admin.refusal(method, path, body), [403, 'role_required'], `${method} ${path}`)
  assert.deepEqual(await owner.refusal('DELETE', '/api/membership'), [409, 'last_owner'])
  assert.deepEqual(await owner.refusal('PATCH', `/api/members/${owner.personId}`, { role: 'admin' }), [
    409,
    'last_owner',
  ])
  await owner.patch(`/api/members/${admin.personId}`, { role: 'owner' })
  // Two owners who demote each other at the same moment: one of them stays.
  const both = await Promise.all([
    owner.send('PATCH', `/api/members/${admin.personId}`, { role: 'viewer' }),
    admin.send('PATCH', `/api/members/${owner.personId}`, { role: 'viewer' }),
  ])
  assert.equal(both.filter(({ status }) => status === 200).length, 1)
  const owners = await suite.service.database.query(
    `select person_id from memberships where account_id = $1 and role = 'owner'`,
    [account.accountId],
  )
  assert.equal(owners.length, 1)
})

test('an admin cannot lift the own spending limit, and an owner can', async () => {
  const { account, owner } = await openAccount()
  const admin = await signInMember(suite.service, account, 'admin')
  const path = `/api/members/${admin.personId}`
  await owner.patch(path, { limit: '1', limit_window: 'day' })
  for (const change of [{ limit: null }, { limit: '2' }, { limit_window: 'month' }])
    assert.deepEqual(await admin.refusal('PATCH', path, change), [403, 'role_required'])
  assert.equal((await owner.patch(path, { limit: null })).limit, null)
  assert.equal((await owner.patch(`/api/members/${owner.personId}`, { limit: '3' })).limit, '3')
})

test('a removed member loses access immediately: sessions, API keys, management keys and invitations', async () => {
  const { account, owner } = await openAccount()
  const admin = await signInMember(suite.service, account, 'admin')
  const { secret } = await admin.post('/api/keys', { name: 'of the admin' })
  const management = await admin.post('/api/management-keys', { name: 'ci', scopes: ['keys:read'] })
  const token = await invite(admin, { role: 'developer' })
  const bearer = { authorization: `Bearer ${management.secret}` }
  assert.equal((await admin.send('GET', '/api/keys', undefined, bearer)).status, 200)
  await owner.delete(`/api/members/${admin.personId}`)
  assert.deepEqual(await admin.refusal('GET', '/api/balance'), [401, 'session_required'])
  const chat = await postChat(suite.service, secret, question)
  assert.deepEqual([chat.status, ((await chat.json()) as Json).error.code], [401, 'api_key_revoked'])
  assert.deepEqual(await admin.refusal('GET', '/api/keys', undefined, bearer), [401, 'api_key_revoked'])
  assert.deepEqual(await admin.refusal('POST', '/api/auth/invitation', { token }), [404, 'not_found'])
  assert.equal((await logOf(owner))[0].facts.name, 'The admin')
})

test('a removed admin keeps no secret of keys that others made, and their owners read why a key stopped', async () => {
  const { account, owner } = await openAccount()
  const admin = await signInMember(suite.service, account, 'admin')
  const [only, shared, later] = [
    await owner.post('/api/keys', { name: 'only' }),
    await owner.post('/api/keys', { name: 'shared' }),
    await owner.post('/api/keys', { name: 'later' }),
  ]
  const management = await owner.post('/api/management-keys', { name: 'ci', scopes: ['keys:read'] })
  const rotate = (by: SignedInMember, { id }: Json, overlap_seconds = 0) =>
    by.post(`/api/keys/${id}/rotate`, { overlap_seconds })
  const received = await rotate(admin, only)
  const receivedShared = await rotate(admin, shared, 3600)
  const receivedLater = await rotate(admin, later)
  const ofOwner = await rotate(owner, later, 3600)
  const bearer = {
    authorization: `Bearer ${(await admin.post(`/api/management-keys/${management.id}/rotate`)).secret}`,
  }
  suite.upstream.answer = answers(created, delta('Hi'), completed())
  const codeOf = async ({ secret }: Json) => {
    const chat = await postChat(suite.service, secret, question)
    const body = await chat.text()
    return chat.ok ? 200 : (JSON.parse(body) as Json).error.code
  }
  for (const key of [shared, received, receivedShared, receivedLater, ofOwner]) assert.equal(await codeOf(key), 200)
  assert.equal((await admin.send('GET', '/api/keys', undefined, bearer)).status, 200)

  await owner.delete(`/api/members/${admin.personId}`)

  for (const key of [received, receivedShared, receivedLater]) assert.equal(await codeOf(key), 'api_key_revoked')
  assert.deepEqual(await admin.refusal('GET', '/api/keys', undefined, bearer), [401, 'api_key_revoked'])
  // Secrets of others work on. A key without any would look active and refuse every request.
  assert.deepEqual([await codeOf(shared), await codeOf(ofOwner)], [200, 200])
  const read = ({ id }: Json) => owner.get(`/api/keys/${id}`)
  assert.equal((await read(only)).status, 'revoked')
  const kept = await read(shared)
  assert.deepEqual([kept.status, kept.hint], ['active', shared.hint])
  assert.equal(kept.expires_at, kept.old_secrets[0].works_until, 'it ends with its last secret')
  assert.deepEqual([(await read(later)).expires_at, (await read(later)).old_secrets], [null, []])
  assert.equal((await owner.get(`/api/management-keys/${management.id}`)).status, 'revoked')
  const log = (await logOf(owner)).filter(({ actor }) => actor.id === owner.personId)
  const since = log.slice(
    0,
    log.findIndex(({ event }) => event === 'key_rotated'),
  )
  assert.deepEqual(since.map(({ event, facts }) => `${event} ${facts.name} ${facts.changed ?? ''}`.trim()).sort(), [
    'key_changed later secret',
    'key_changed shared secret,expires_at',
    'key_revoked only',
    'management_key_revoked ci',
    'member_removed The admin',
  ])
})

for (const [change, isLost] of [
  ['removed', true],
  ['made a developer', true],
  ['made an admin', false],
] as const)
  test(`an owner who is ${change} on another node ${isLost ? 'loses' : 'keeps'} the secrets of rotated keys`, async () => {
    const { account, owner } = await openAccount()
    const { database } = suite.service
    const second = await signInMember(suite.service, account, 'owner')
    const { id } = await owner.post('/api/keys', { name: 'of the owner' })
    const management = await owner.post('/api/management-keys', { name: 'ci', scopes: ['keys:read'] })
    const own = await second.post('/api/keys', { name: 'own' })
    const { secret } = await second.post(`/api/keys/${id}/rotate`, { overlap_seconds: 3600 })
    const rotated = await second.post(`/api/management-keys/${management.id}/rotate`)
    suite.upstream.answer = answers(created, delta('Hi'), completed())
    const statusOf = async (key: string) => {
      const chat = await postChat(suite.service, key, question)
      await chat.text()
      return chat.status
    }
    const bearer = { authorization: `Bearer ${rotated.secret}` }
    const managementStatus = async () => (await second.send('GET', '/api/keys', undefined, bearer)).status
    assert.deepEqual([await statusOf(secret), await managementStatus()], [200, 200])
    // This node is not told: it has the secret in its cache.
    const person = byOwner(second.personId)
    await database.transaction((connection) =>
      change === 'removed'
        ? removeMember(connection, account, person)
        : changeMember(connection, account, person, { role: change === 'made an admin' ? 'admin' : 'developer' }),
    )
    const expected = isLost ? 401 : 200
    assert.deepEqual([await statusOf(secret), await managementStatus()], [expected, expected])
    assert.equal(await statusOf(own.secret), change === 'removed' ? 401 : 200)
  })

type Change = readonly [method: string, path: string, body: object]

/** Sends all of a request but the end of its body, which follows with `finish`. Resolves when the service has read the session or key. */
async function begin(
  t: TestContext,
  member: SignedInMember,
  [method, path, body]: Change,
  headers: Record<string, string> = {},
): Promise<{ readonly finish: () => Promise<[number, string]> }> {
  const { database } = suite.service
  const table = headers.authorization === undefined ? 'sessions' : 'management_keys'
  const owned = [member.account.accountId]
  // A use is written down at most once a minute: the next one is.
  await database.query(
    `update ${table} set last_used_at = clock_timestamp() - interval '2 minutes' where account_id = $1`,
    owned,
  )
  const sent = JSON.stringify(body)
  const upload = request(`${member.origin}${path}`, {
    method,
    headers: {
      origin: member.origin,
      'x-forwarded-for': member.address,
      'content-type': 'application/json',
      'content-length': sent.length,
      ...(headers.authorization === undefined && { cookie: member.cookie }),
      ...headers,
    },
  })
  atEnd(t, () => upload.destroy())
  const answered = once(upload, 'response') as Promise<[IncomingMessage]>
  upload.write(sent.slice(0, 5))
  await until(async () => {
    const used = `select from ${table} where account_id = $1 and last_used_at > clock_timestamp() - interval '1 minute'`
    return (await database.query(used, owned)).length > 0
  })
  const finish = async (): Promise<[number, string]> => {
    upload.end(sent.slice(5))
    const [answer] = await answered
    return [answer.statusCode!, (JSON.parse(await text(answer)) as Json).error?.code ?? 'none']
  }
  return { finish }
}

const removedDuring: readonly Change[] = [
  ['POST', '/api/keys', { name: 'late' }],
  ['POST', '/api/invitations', { role: 'owner' }],
  ['POST', '/api/management-keys', { name: 'late', scopes: ['keys:write'] }],
  ['POST', '/api/webhooks', { url: 'https://example.com/hook', types: ['key.created'] }],
  ['POST', '/api/playground', { key_id: '00000000-0000-4000-8000-000000000000', ...question }],
]
for (const change of removedDuring) {
  test(`a member who is removed while the body of ${change[0]} ${change[1]} is on its way is refused`, async (t) => {
    const { account, owner } = await openAccount()
    const { database } = suite.service
    const insider = await signInMember(suite.service, account, 'owner')
    const upload = await begin(t, insider, change)
    await database.transaction((connection) => removeMember(connection, account, byOwner(insider.personId)))
    assert.deepEqual(await upload.finish(), [401, 'session_required'])
    assert.deepEqual(await namesOfKeys(owner), ['test'])
    assert.deepEqual((await owner.get('/api/invitations')).data, [])
  })
}

test('a member who is demoted while a body is on its way has the new role', async (t) => {
  const { account } = await openAccount()
  const { database } = suite.service
  const insider = await signInMember(suite.service, account, 'owner')
  const upload = await begin(t, insider, ['PATCH', `/api/members/${insider.personId}`, { role: 'owner' }])
  const demoted = byOwner(insider.personId)
  await database.transaction((connection) => changeMember(connection, account, demoted, { role: 'viewer' }))
  assert.deepEqual(await upload.finish(), [403, 'role_required'])
})

test('a management key that is revoked while a body is on its way is refused', async (t) => {
  const { owner } = await openAccount()
  const { id, secret } = await owner.post('/api/management-keys', { name: 'ci', scopes: ['keys:write'] })
  const bearer = { authorization: `Bearer ${secret}` }
  const upload = await begin(t, owner, ['POST', '/api/keys', { name: 'late' }], bearer)
  await owner.delete(`/api/management-keys/${id}`)
  assert.deepEqual(await upload.finish(), [401, 'api_key_revoked'])
})

test('changes that wait for the account while their member is removed or demoted are refused', async () => {
  const { account, owner } = await openAccount()
  const { database } = suite.service
  const removed = await signInMember(suite.service, account, 'owner')
  const demoted = await signInMember(suite.service, account, 'owner')
  const { id: keyId } = await owner.post('/api/keys', { name: 'of the owner' })
  /** Sends the changes while the account is locked, two at most: the service serves no more of an account at a time. */
  const race = async (
    changes: () => readonly Promise<[number, string]>[],
    meanwhile: (connection: Connection) => Promise<unknown>,
  ) => {
    const sent = await database.transaction(async (connection) => {
      await lockAccount(connection, account)
      const waiting = changes()
      await until(async () => (await waitingForLock()) === waiting.length)
      await meanwhile(connection)
      return waiting
    })
    return Promise.all(sent)
  }
  const ofRemoved = await race(
    () => [
      removed.refusal('POST', '/api/keys', { name: 'late' }),
      removed.refusal('POST', '/api/invitations', { role: 'owner' }),
    ],
    (connection) => removeMember(connection, account, byOwner(removed.personId)),
  )
  assert.deepEqual(ofRemoved, [
    [403, 'role_required'],
    [401, 'session_required'],
  ])
  const ofDemoted = await race(
    () => [
      demoted.refusal('POST', `/api/keys/${keyId}/rotate`),
      demoted.refusal('POST', '/api/management-keys', { name: 'late', scopes: ['keys:write'] }),
    ],
    (connection) => changeMember(connection, account, byOwner(demoted.personId), { role: 'developer' }),
  )
  assert.deepEqual(ofDemoted, [
    [404, 'not_found'],
    [403, 'role_required'],
  ])
  assert.deepEqual(await namesOfKeys(owner), ['of the owner', 'test'])
})

async function namesOfKeys(client: DashboardClient): Promise<readonly string[]> {
  return (await client.get('/api/keys')).data.map(({ name }: Json) => name)
}

/** How many statements of this ledger wait for a lock. */
async function waitingForLock(): Promise<number> {
  const [row] = await suite.service.database.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  )
  return row!.count
}

test('an owner who is demoted keeps no link that makes an owner', async () => {
  const { account, owner } = await openAccount()
  const second = await signInMember(suite.service, account, 'owner')
  const token = await invite(second, { role: 'owner' })
  await owner.patch(`/api/members/${second.personId}`, { role: 'admin' })
  assert.deepEqual(await second.refusal('POST', '/api/auth/invitation', { token }), [404, 'not_found'])
})

test('the keys of a member never add up to more than the member’s limit, however many are made at once', async () => {
  const { account, owner } = await openAccount()
  const developer = await signInMember(suite.service, account, 'developer')
  await owner.patch(`/api/members/${developer.personId}`, { limit: '1', limit_window: 'month' })
  const terms = { name: 'one of ten', limit: '0.3', limit_window: 'month' }
  const answers = await Promise.all(Array.from({ length: 10 }, () => developer.send('POST', '/api/keys', terms)))
  assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 201, 201, ...Array(7).fill(403)])
  const refused = (body: object) => developer.refusal('POST', '/api/keys', { name: 'more', ...body })
  assert.deepEqual(await refused({}), [403, 'member_limit_exceeded'])
  assert.deepEqual(await refused({ limit: '0.1' }), [403, 'member_limit_exceeded'], 'another window')
  assert.deepEqual(await refused({ limit: '0.100001', limit_window: 'month' }), [403, 'member_limit_exceeded'])
  const [first] = (await developer.get('/api/keys')).data
  // Neither the member nor an admin passes it by changing a key, and both together raise at most one key.
  const raised = await Promise.all(
    [developer, owner].map((by) => by.send('PATCH', `/api/keys/${first.id}`, { limit: '0.4' })),
  )
  assert.deepEqual(
    raised.map(({ status }) => status),
    [200, 200],
  )
  assert.deepEqual(await owner.refusal('PATCH', `/api/keys/${first.id}`, { limit: null }), [
    403,
    'member_limit_exceeded',
  ])
  assert.deepEqual(await owner.refusal('PATCH', `/api/members/${developer.personId}`, { limit: '0.9' }), [
    403,
    'member_limit_exceeded',
  ])
  // What a revoked key has spent stays counted; what it had left can be given to another key.
  await suite.service.database.query(
    `update api_keys set spent = 250000, window_start = window_start('month', clock_timestamp()) where id = $1`,
    [first.id],
  )
  await developer.delete(`/api/keys/${first.id}`)
  assert.deepEqual(await refused({ limit: '0.16', limit_window: 'month' }), [403, 'member_limit_exceeded'])
  await developer.post('/api/keys', { name: 'the rest', limit: '0.15', limit_window: 'month' })
  await suite.service.database.query('update api_keys set spent = 0 where id = $1', [first.id])
})

test('members below admin see and change only their own keys', async () => {
  const { account, owner } = await openAccount()
  const developer = await signInMember(suite.service, account, 'developer')
  const theirs = await owner.post('/api/keys', { name: 'of the owner' })
  const own = await developer.post('/api/keys', { name: 'own' })
  assert.deepEqual(
    (await developer.get('/api/keys')).data.map(({ id }: Json) => id),
    [own.id],
  )
  const paths = [`/api/keys/${theirs.id}`, `/api/keys/${theirs.id}/rotate`]
  for (const [method, path] of [
    ['GET', paths[0]],
    ['PATCH', paths[0]],
    ['DELETE', paths[0]],
    ['POST', paths[1]],
  ] as const)
    assert.deepEqual(await developer.refusal(method, path!, method === 'GET' ? undefined : {}), [404, 'not_found'])
  const quote = { key_id: theirs.id, ...question }
  assert.deepEqual(await developer.refusal('POST', '/api/quote', quote), [404, 'not_found'])
  assert.deepEqual(await developer.refusal('POST', '/api/playground', quote), [404, 'not_found'])
  await owner.patch(`/api/keys/${own.id}`, { name: 'renamed by the owner' })
  await owner.patch(`/api/members/${developer.personId}`, { role: 'viewer' })
  const [key] = (await developer.get('/api/keys')).data
  assert.equal(key.status, 'revoked', 'a viewer has no keys')
})

test('a developer deletes the kept answers of their own keys, and an owner those of all', async () => {
  const { account, owner } = await openAccount()
  const developer = await signInMember(suite.service, account, 'developer')
  const theirs = await owner.post('/api/keys', { name: 'of the owner' })
  const own = await developer.post('/api/keys', { name: 'own' })
  suite.upstream.answer = answers(created, delta('Hi'), completed())
  for (const { secret } of [theirs, own]) {
    const answer = await postChat(suite.service, secret, question, { headers: { 'idempotency-key': 'kept' } })
    assert.equal(answer.status, 200, await answer.text())
  }
  const deletedBy = async (client: DashboardClient) =>
    (await (await client.send('DELETE', '/api/replays')).json()).deleted
  assert.deepEqual([await deletedBy(developer), await deletedBy(developer), await deletedBy(owner)], [1, 0, 1])
})

test('members below admin get no alerts about keys of others, neither on Overview nor in the list', async () => {
  const { account, owner } = await openAccount()
  const developer = await signInMember(suite.service, account, 'developer')
  const theirs = await owner.post('/api/keys', { name: 'of the owner', limit: '1' })
  const own = await developer.post('/api/keys', { name: 'own', limit: '1' })
  const { database } = suite.service
  await database.query('update api_keys set spent = 900000 where id = any ($1::uuid[])', [[theirs.id, own.id]])
  await evaluateAccounts(database, account.partition, [account.accountId])
  const seen = async (client: DashboardClient) => {
    const [list, overview] = [await client.get('/api/alerts'), await client.get('/api/overview')]
    const isOfKey = ({ href }: Json) => href.startsWith('/keys/')
    return [list.data.filter(isOfKey), overview.alerts.filter(isOfKey)].map((alerts) =>
      alerts.map(({ href }: Json) => href.slice('/keys/'.length)).toSorted(),
    )
  }
  const both = [theirs.id, own.id].toSorted()
  assert.deepEqual(await seen(owner), [both, both])
  assert.deepEqual(await seen(developer), [[own.id], [own.id]])
  await database.query('update api_keys set spent = 0 where id = any ($1::uuid[])', [[theirs.id, own.id]])
})

test('a management key manages keys like a person does, cannot spend, and stops with its old secret', async () => {
  const { owner } = await openAccount()
  const made = await owner.post('/api/management-keys', { name: 'terraform', scopes: ['keys:write', 'log:read'] })
  const program = new DashboardClient(suite.service)
  const bearer = (secret: string) => ({ authorization: `Bearer ${secret}`, origin: 'https://elsewhere.example' })
  const send = (method: string, path: string, body?: unknown) => program.send(method, path, body, bearer(made.secret))
  const chat = await postChat(suite.service, made.secret, question)
  const { error } = (await chat.json()) as Json
  assert.deepEqual([chat.status, error.code], [401, 'invalid_api_key'])
  assert.match(error.message, /management key, which works for \/api only\. Use an API key/)

  const created = (await (await send('POST', '/api/keys', { name: 'worker', limit: '2' })).json()) as Json
  assert.equal(created.made_by, null)
  const change = { name: 'worker', limit: '3', allowed_models: ['gpt-5.6-luna'] }
  const [once, twice] = [
    (await (await send('PATCH', `/api/keys/${created.id}`, change)).json()) as Json,
    (await (await send('PATCH', `/api/keys/${created.id}`, change)).json()) as Json,
  ]
  assert.deepEqual(once, twice, 'the same change twice leaves the same key')
  assert.equal((await send('DELETE', `/api/keys/${created.id}`)).status, 200)
  assert.equal((await send('DELETE', `/api/keys/${created.id}`)).status, 200)
  assert.equal(((await (await send('GET', `/api/keys/${created.id}`)).json()) as Json).status, 'revoked')
  const { data } = (await (await send('GET', '/api/log')).json()) as Json
  assert.deepEqual(
    [data[0].event, data[0].actor.kind, data[0].actor.name],
    ['key_revoked', 'management_key', 'terraform'],
  )
  assert.equal(data.filter(({ event }: Json) => event === 'key_revoked').length, 1)
  assert.equal((await send('POST', '/api/withdrawals', {})).status, 403)

  const rotated = await owner.post(`/api/management-keys/${made.id}/rotate`)
  assert.equal(rotated.id, made.id)
  assert.equal((await send('GET', '/api/keys')).status, 401)
  assert.equal((await program.send('GET', '/api/keys', undefined, bearer(rotated.secret))).status, 200)
  const listed = JSON.stringify(await owner.get('/api/management-keys'))
  assert.ok(!listed.includes(made.secret) && !listed.includes(rotated.secret))
})

test('an account keeps its newest log entries, and pages go through all of them once', async () => {
  const { account, owner } = await openAccount()
  for (let name = 0; name < 12; name += 1) await owner.post('/api/keys', { name: `${name}` })
  const names: string[] = []
  let cursor = ''
  do {
    const page = await owner.get(`/api/log?limit=5${cursor}`)
    names.push(...page.data.map(({ facts }: Json) => facts.name))
    cursor = page.has_more ? `&cursor=${encodeURIComponent(page.next_cursor)}` : ''
  } while (cursor !== '')
  for (const id of ['abc', '-', '0'.repeat(36), 'f'.repeat(40)])
    assert.deepEqual(await owner.refusal('GET', `/api/log?cursor=2026-01-01T00:00:00.000Z_${id}`), [
      400,
      'invalid_value',
    ])
  assert.deepEqual(names.map(Number), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
  await deleteOldLogRows(suite.service.database, 4)
  assert.deepEqual(
    (await logOf(owner)).map(({ facts }) => Number(facts.name)),
    [11, 10, 9, 8],
  )
  await suite.service.database.query(
    `update account_log set created_at = created_at - interval '401 days' where account_id = $1`,
    [account.accountId],
  )
  await deleteOldLogRows(suite.service.database)
  assert.deepEqual(await logOf(owner), [])
})

function byOwner(personId: string): MemberCall {
  return { by: { role: 'owner', personId: randomUUID() }, personId, ownerCooldownMs: 0 }
}
