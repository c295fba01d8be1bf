import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import {
  createWallet,
  DashboardClient,
  type Json,
  signedMessage,
  signInNew,
} from '../../test/support/dashboard-client.ts'
import { Device } from '../../test/support/passkey-device.ts'
import { signInMember } from '../../test/support/people.ts'
import { postChat } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { createLoginToken } from '../identity/login-links.ts'

const suite = serviceSuite({ TRUST_PROXY: '1' })

test('the first sign-in with a wallet opens an account, and the next one finds it again', async () => {
  const wallet = createWallet()
  const first = new DashboardClient(suite.service)
  const opened = await first.post('/api/auth/wallet', await signedMessage(first, wallet))
  assert.equal(opened.signed_in, true)
  assert.deepEqual(
    opened.account.wallets.map(({ address }: Json) => address),
    [wallet.address.toLowerCase()],
  )
  const second = new DashboardClient(suite.service)
  const found = await second.post('/api/auth/wallet', await signedMessage(second, wallet))
  assert.equal(found.account.id, opened.account.id)
  assert.equal((await second.get('/api/session')).session.method, 'wallet')
})

test('a signed message works once: of twenty concurrent sign-ins with it, one succeeds', async () => {
  const client = new DashboardClient(suite.service)
  const signed = await signedMessage(client, createWallet())
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => new DashboardClient(suite.service).send('POST', '/api/auth/wallet', signed)),
  )
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, ...Array(19).fill(401)])
})

test('a wallet cannot sign in with another message, another signature or another wallet’s message', async () => {
  const client = new DashboardClient(suite.service)
  const wallet = createWallet()
  const refused = async (message: string, signature: string) =>
    assert.deepEqual(await client.refusal('POST', '/api/auth/wallet', { message, signature }), [401, 'sign_in_failed'])

  const evil = (await signedMessage(client, wallet)).message.replaceAll('localhost', 'evil.example')
  await refused(evil, await wallet.signMessage({ message: evil }))
  const otherChain = (await signedMessage(client, wallet)).message.replace(/Chain ID: \d+/, 'Chain ID: 1')
  await refused(otherChain, await wallet.signMessage({ message: otherChain }))
  const { message } = await signedMessage(client, wallet)
  await refused(message, await createWallet().signMessage({ message }))
  await refused((await signedMessage(client, wallet)).message, `0x${'00'.repeat(65)}`)
  await refused(message.replace(/Nonce: .*/, `Nonce: ${'a'.repeat(40)}`), await wallet.signMessage({ message }))
  await refused('no message at all', await wallet.signMessage({ message: 'no message at all' }))
})

test('two first sign-ins of one wallet at one moment lead to one account', async () => {
  const wallet = createWallet()
  const clients = Array.from({ length: 8 }, () => new DashboardClient(suite.service))
  const signed = await Promise.all(clients.map((client) => signedMessage(client, wallet)))
  const sessions = await Promise.all(clients.map((client, index) => client.post('/api/auth/wallet', signed[index])))
  assert.equal(new Set(sessions.map(({ account }) => account.id)).size, 1)
})

test('the session’s cookie cannot be read by a page and goes with no request of another site', async () => {
  const client = new DashboardClient(suite.service)
  const answer = await client.send('POST', '/api/auth/wallet', await signedMessage(client, createWallet()))
  assert.match(
    answer.headers.get('set-cookie')!,
    /^penny_session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=43200$/,
  )
  assert.equal(answer.headers.get('access-control-allow-origin'), null)
  assert.equal(answer.headers.get('cache-control'), 'no-store')
})

test('after signing out the cookie opens nothing', async () => {
  const client = await signInNew(suite.service)
  const { cookie } = client
  await client.post('/api/auth/logout')
  client.cookie = cookie
  assert.deepEqual(await client.refusal('GET', '/api/balance'), [401, 'session_required'])
  assert.equal((await client.get('/api/session')).signed_in, false)
})

test('signing in again replaces the session: a token seen before is worth nothing', async () => {
  const client = await signInNew(suite.service)
  const before = client.cookie!
  await client.post('/api/auth/wallet', await signedMessage(client, createWallet()))
  client.cookie = before
  assert.deepEqual(await client.refusal('GET', '/api/balance'), [401, 'session_required'])
})

test('sessions can be seen and ended, one by one or all the others', async () => {
  const wallet = createWallet()
  const clients = Array.from({ length: 3 }, () => new DashboardClient(suite.service))
  for (const client of clients) await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const [mine, other, third] = clients as [DashboardClient, DashboardClient, DashboardClient]
  const { data } = await mine.get('/api/sessions')
  assert.equal(data.length, 3)
  assert.equal(data.filter(({ current }: Json) => current).length, 1)
  const theirs = (await other.get('/api/session')).session.id
  await mine.delete(`/api/sessions/${theirs}`)
  assert.deepEqual(await other.refusal('GET', '/api/balance'), [401, 'session_required'])
  await mine.delete('/api/sessions')
  assert.deepEqual(await third.refusal('GET', '/api/balance'), [401, 'session_required'])
  await mine.get('/api/balance')
})

test('a session ends when it is not used for half an hour, and after twelve hours whatever it did', async () => {
  const ageing = ["last_used_at = clock_timestamp() - interval '31 minutes'", 'expires_at = clock_timestamp()']
  for (const change of ageing) {
    const client = await signInNew(suite.service)
    await suite.service.database.query(`update sessions set ${change} where account_id = $1`, [client.accountId])
    assert.deepEqual(await client.refusal('GET', '/api/balance'), [401, 'session_required'])
  }
})

test('a printed link signs in once', async () => {
  const account = await suite.service.openAccount('1')
  const owner = { partition: account.partition, accountId: account.id }
  const token = await createLoginToken(suite.service.database, owner, 60)
  const client = new DashboardClient(suite.service)
  assert.equal((await client.post('/api/auth/link', { token })).account.id, account.id)
  assert.deepEqual(await client.refusal('POST', '/api/auth/link', { token }), [401, 'sign_in_failed'])
  const expired = await createLoginToken(suite.service.database, owner, 0)
  assert.deepEqual(await client.refusal('POST', '/api/auth/link', { token: expired }), [401, 'sign_in_failed'])
})

test('in the sandbox one click from this machine signs in, and none from elsewhere', async () => {
  const client = new DashboardClient(suite.service)
  assert.deepEqual(await client.refusal('POST', '/api/auth/local', {}, { 'x-forwarded-for': '203.0.113.5' }), [
    404,
    'unknown_url',
  ])
  assert.equal((await client.get('/api/session')).sign_in.local, true)
  const session = await client.post('/api/auth/local')
  assert.equal(session.account.name, 'Sandbox demo')
  const again = new DashboardClient(suite.service)
  assert.equal((await again.post('/api/auth/local')).account.id, session.account.id)
})

test('a second wallet can be added and the first removed, but never the last way in', async () => {
  const wallet = createWallet()
  const client = new DashboardClient(suite.service)
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.deepEqual(await client.refusal('DELETE', `/api/wallets/${wallet.address}`), [400, 'invalid_value'])
  const second = createWallet()
  assert.equal((await client.post('/api/wallets', await signedMessage(client, second))).wallets.length, 2)
  assert.equal((await client.delete(`/api/wallets/${wallet.address}`)).wallets.length, 1)
  const other = new DashboardClient(suite.service)
  assert.equal((await other.post('/api/auth/wallet', await signedMessage(other, second))).account.id, account.id)
  // The first wallet belongs to no person now: it opens its own account, and cannot be moved to another one.
  await other.post('/api/auth/wallet', await signedMessage(other, wallet))
  assert.deepEqual(await client.refusal('POST', '/api/wallets', await signedMessage(client, wallet)), [
    400,
    'invalid_value',
  ])
})

test('changing who may sign in needs a sign-in of the last minutes', async () => {
  const client = await signInNew(suite.service)
  const signed = await signedMessage(client, createWallet())
  await suite.service.database.query(
    `update sessions set created_at = clock_timestamp() - interval '16 minutes' where account_id = $1`,
    [client.accountId],
  )
  assert.deepEqual(await client.refusal('POST', '/api/wallets', signed), [403, 'recent_sign_in_required'])
  assert.equal((await client.get('/api/session')).recent_until, null)
  const withdrawal = { amount: '1', recipient: createWallet().address }
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', withdrawal, { 'idempotency-key': 'one-form' }), [
    403,
    'recent_sign_in_required',
  ])
})

test('a page of another site changes nothing, with the cookie or without', async () => {
  const client = await signInNew(suite.service)
  const strange: Record<string, string>[] = [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { origin: suite.service.origin.replace('localhost', '127.0.0.1') },
  ]
  for (const headers of strange) {
    assert.deepEqual(await client.refusal('POST', '/api/keys', { name: 'x' }, headers), [403, 'cross_site_request'])
    assert.deepEqual(await client.refusal('POST', '/api/auth/nonce', { address: createWallet().address }, headers), [
      403,
      'cross_site_request',
    ])
  }
  const unnamed = await fetch(`${suite.service.origin}/api/keys`, {
    method: 'POST',
    headers: { cookie: client.cookie!, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'x' }),
  })
  assert.equal(unnamed.status, 403)
  assert.equal((await client.get('/api/keys')).data.length, 0)
})

test('a session cannot call /v1', async () => {
  const client = await signInNew(suite.service, '1')
  const answer = await fetch(`${suite.service.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { cookie: client.cookie!, origin: suite.service.origin, 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'hi' }] }),
  })
  assert.equal(answer.status, 401)
  const token = client.cookie!.split('=')[1]!
  assert.equal((await postChat(suite.service, token, { messages: [{ role: 'user', content: 'hi' }] })).status, 401)
})

test('a passkey opens an account and signs in to it, and a second device can be added', async () => {
  const client = new DashboardClient(suite.service)
  const device = new Device()
  const opened = await client.post('/api/auth/passkey/register', {
    name: 'Laptop',
    credential: await device.register(client),
  })
  assert.deepEqual(
    opened.account.passkeys.map(({ name }: Json) => name),
    ['Laptop'],
  )
  const other = new DashboardClient(suite.service)
  const found = await other.post('/api/auth/passkey/verify', { credential: await device.signIn(other) })
  assert.equal(found.account.id, opened.account.id)
  const second = new Device()
  const added = await other.post('/api/auth/passkey/register', { credential: await second.register(other) })
  assert.equal(added.account.id, opened.account.id)
  assert.equal(added.account.passkeys.length, 2)
})

test('adding a passkey needs a recent sign-in before the device creates one, and never opens a new account', async () => {
  const { database } = suite.service
  const client = new DashboardClient(suite.service)
  const first = new Device()
  const { account } = await client.post('/api/auth/passkey/register', { credential: await first.register(client) })
  const shown = { 'x-router-account': account.id }
  const options = (purpose: string) => client.refusal('POST', '/api/auth/passkey/options', { purpose }, shown)
  const counts = async () => {
    const [row] = await database.query<{ challenges: number; people: number; passkeys: number }>(
      `select (select count(*) from sign_in_challenges)::int as challenges, (select count(*) from people)::int as people,
              (select count(*) from passkeys)::int as passkeys`,
    )
    return row
  }
  const credential = await new Device().register(client)
  const before = await counts()
  await database.query(
    `update sessions set created_at = clock_timestamp() - interval '16 minutes' where account_id = $1`,
    [account.id],
  )
  assert.deepEqual(await options('register'), [403, 'recent_sign_in_required'])
  assert.deepEqual(await counts(), before, 'no challenge to answer')
  await database.query('delete from sessions where account_id = $1', [account.id])
  assert.deepEqual(await options('register'), [401, 'session_required'])
  assert.deepEqual(await client.refusal('POST', '/api/auth/passkey/register', { credential }, shown), [
    401,
    'session_required',
  ])
  assert.deepEqual(await counts(), before)
  // Signing in again and opening another account work from the same page.
  const again = await client.send('POST', '/api/auth/passkey/options', { purpose: 'sign_in' }, shown)
  assert.equal(again.status, 200)
  const other = await client.post('/api/auth/passkey/register', { credential })
  assert.notEqual(other.account.id, account.id)
})

// Both are members of one account, so that its id does not tell them apart.
test('a window that shows another person than the session has changes nothing of the person who signed in since', async () => {
  const { database } = suite.service
  const { id: accountId, partition } = await suite.service.openAccount('1')
  const account = { partition, accountId }
  const shown = await signInMember(suite.service, account, 'owner')
  const since = await signInMember(suite.service, account, 'owner')
  const credential = await new Device().register(since)
  const headers = { 'x-router-account': accountId, 'x-router-person': shown.personId }
  const refused = async (method: string, path: string, body?: unknown, given = headers as Record<string, string>) =>
    assert.deepEqual(await since.refusal(method, path, body, given), [409, 'account_switched'], `${method} ${path}`)
  await refused('POST', '/api/auth/passkey/options', { purpose: 'register' })
  await refused('POST', '/api/auth/passkey/register', { credential })
  await refused('POST', '/api/wallets', await signedMessage(since, createWallet()))
  await refused('PATCH', '/api/person', { name: 'Another name' })
  await refused('POST', '/api/auth/invitation/accept', { token: 'x' })
  await refused('POST', '/api/session/account', { account_id: accountId })
  await refused('DELETE', '/api/membership')
  // The sign-in page shows no session, and offers a new account.
  await refused('POST', '/api/auth/passkey/register', { credential }, { 'x-router-person': 'none' })
  const [{ passkeys } = { passkeys: -1 }] = await database.query<{ passkeys: number }>(
    'select count(*)::int as passkeys from passkeys where person_id = $1',
    [since.personId],
  )
  assert.equal(passkeys, 0)
  assert.equal((await since.get('/api/session')).person.name, 'The owner')
  // Signing in and out works in any window, and changes in the person's own.
  assert.equal((await since.send('POST', '/api/auth/nonce', { address: createWallet().address }, headers)).status, 200)
  await since.post('/api/auth/passkey/register', { credential }, { ...headers, 'x-router-person': since.personId })
  await since.post('/api/auth/logout', {}, headers)
})

// "Confirm it is you" opened whatever account the wallet, passkey or local sign-in belongs to, and the page's form was lost.
test('a page that shows a person accepts only a sign-in of that person, and a refused one creates nothing', async () => {
  const { database } = suite.service
  const shown = new DashboardClient(suite.service)
  const device = new Device()
  const { person } = await shown.post('/api/auth/passkey/register', { credential: await device.register(shown) })
  const headers = { 'x-router-person': person.id }
  const other = new Device()
  await new DashboardClient(suite.service).post('/api/auth/passkey/register', {
    credential: await other.register(shown),
  })
  const counts = () => database.query('select (select count(*) from people) + (select count(*) from accounts) as count')
  const before = await counts()
  const refused = async (path: string, body: unknown) =>
    assert.deepEqual(await shown.refusal('POST', path, body, headers), [409, 'account_switched'], path)
  await refused('/api/auth/passkey/verify', { credential: await other.signIn(shown) })
  await refused('/api/auth/wallet', await signedMessage(shown, createWallet()))
  assert.deepEqual(await counts(), before)
  assert.equal((await shown.get('/api/session')).person.id, person.id)
  const again = await shown.post('/api/auth/passkey/verify', { credential: await device.signIn(shown) }, headers)
  assert.equal(again.person.id, person.id)
})

test('a passkey’s answer is good once, for this place, by its own key and with its owner present', async () => {
  const client = new DashboardClient(suite.service)
  const device = new Device()
  await client.post('/api/auth/passkey/register', { credential: await device.register(client) })
  const refused = async (credential: Json) =>
    assert.deepEqual(await client.refusal('POST', '/api/auth/passkey/verify', { credential }), [401, 'sign_in_failed'])

  const used = await device.signIn(client)
  await client.post('/api/auth/passkey/verify', { credential: used })
  await refused(used)
  await refused(await device.signIn(client, { origin: 'https://evil.example' }))
  await refused(await device.signIn(client, { rpId: 'evil.example' }))
  await refused(await device.signIn(client, { flags: 0x01 }))
  await refused(await device.signIn(client, { key: new Device().privateKey }))
  await refused(await new Device().signIn(client))
  await refused(await device.signIn(client, { challenge: randomBytes(20).toString('base64url') }))
})

test('how often one address may try to sign in is limited, and others are not held up by it', async () => {
  const client = new DashboardClient(suite.service)
  const tryToSignIn = () => client.send('POST', '/api/auth/link', { token: 'x' })
  let answer = await tryToSignIn()
  for (let index = 0; index < 90 && answer.status !== 429; index += 1) answer = await tryToSignIn()
  assert.equal(answer.status, 429)
  assert.ok(Number(answer.headers.get('retry-after-ms')) > 0)
  assert.equal((await client.send('GET', '/api/session')).status, 200)
})
