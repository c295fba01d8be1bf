import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { createWallet, DashboardClient, signedMessage } from '../../test/support/dashboard-client.ts'
import { Device } from '../../test/support/passkey-device.ts'
import { entryOf } from '../../test/support/people.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { keys as accountKeys, createCustodian } from '../../test/support/signing.ts'
import { loadPriceList } from '../billing/price-list.ts'
import { BodyBudget } from '../http/body-budget.ts'
import { errorResponse } from '../http/error-response.ts'
import type { HonoBindings } from '../http/hono.ts'
import { siteOf } from '../http/origin.ts'
import { UnpaidRequests } from '../http/unpaid-requests.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { createLoginToken } from '../identity/login-links.ts'
import { addMember } from '../identity/members.ts'
import { addWallet } from '../identity/wallets.ts'
import { type Account, createAccount, findAccountsNamed } from '../ledger/accounts.ts'
import { readBalance } from '../ledger/balance.ts'
import { listDepositAccounts } from '../ledger/deposit-addresses.ts'
import { creditDeposit } from '../ledger/deposits.ts'
import type { WithdrawalState } from '../ledger/states.ts'
import { advanceTransfer } from '../ledger/transfers.ts'
import { findWithdrawal, isSettled, requestWithdrawal, setWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { parse } from '../money/usdc.ts'
import { Funds } from '../settlement/funds.ts'
import type { Custodian } from '../signer/custodian.ts'
import { askCustodian, createSigner } from '../signer/signer.ts'
import { routeAccount } from './account.ts'
import type { ChainFunds } from './chain-services.ts'
import { DepositAddresses } from './deposit-addresses.ts'
import { routeFunds } from './funds.ts'
import { Gate } from './gate.ts'
import { routeMembers } from './members.ts'
import { ApiRouter } from './router.ts'
import { routeSandbox } from './sandbox.ts'
import type { ApiServices } from './services.ts'
import { routeSignIn } from './sign-in.ts'

// The money routes with a fake chain and the real ledger functions.

const usdcAddress = `0x36${'0'.repeat(38)}`
const gatewayAddress = `0x00777${'7'.repeat(35)}`
const ownerAddress = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'

let ledger: TestDatabase
let server: Server
let origin: string
const trail: object[] = []
// As in production.
const ownerCooldownMs = 24 * 3_600_000
/** The clock of the rate at which addresses are assigned. */
const addressesMs = { now: 0 }
let custodian: Custodian
let cleanUp: (() => unknown) | undefined
before(async () => {
  ledger = await testDatabase()
  server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  origin = `http://localhost:${(server.address() as AddressInfo).port}`
  custodian = createCustodian({ after: (undo) => void (cleanUp = undo) }, { ownerWaitMs: ownerCooldownMs })
  server.on('request', createRoutes())
})
after(async () => {
  server.closeAllConnections()
  server.close()
  cleanUp?.()
  await ledger.drop()
})

function createRoutes() {
  const { database } = ledger
  const signer = createSigner({ ask: askCustodian(custodian), onFault: assert.ifError })
  const owners = new Funds({ database, signer, withdrawalMin: parse('0.1') })
  const now = () => performance.now()
  const site = siteOf(origin)
  const keys = new KeyFinder({ database, now })
  const funds: ChainFunds = {
    chain: {
      id: 5_042_002,
      name: 'Arc',
      usdcAddress,
      takesCoin: true,
      gatewayAddress,
      explorerUrl: undefined,
      publicRpcUrl: undefined,
    },
    depositMin: parse('0.1'),
    ownerCooldownMs,
    ownAddress: ({ partition, accountId }) => owners.ownAddress({ partition, id: accountId }),
    depositAddress: ({ partition, accountId }) => owners.depositAddress({ partition, id: accountId }),
    async requestWithdrawal({ partition, accountId, id, amount }, alongside) {
      const request = { partition, accountId, id, amount, recipient: ownerAddress, min: parse('0.1') }
      await requestWithdrawal(database, request, alongside)
    },
    async registerOwner({ partition, accountId, address, isConfirmed }, alongside) {
      const account = { partition, id: accountId }
      const { usableFromMs } = await owners.registerOwner(account, address, isConfirmed, alongside)
      return { address, usableFrom: new Date(usableFromMs) }
    },
  }
  const services = {
    database,
    lookUps: database,
    operators: { accountIds: [], wallets: [] },
    site,
    chainServices: { environment: 'testnet', funds },
    prices: loadPriceList(undefined),
    inFlightCap: parse('1'),
    withdrawalMin: parse('0.1'),
    ledgerPartitions: 1,
    unsettledCap: parse('5'),
    keys,
    log: { info: (line: object) => trail.push(line) },
  } as unknown as ApiServices
  const app = new Hono<HonoBindings>()
  const gate = new Gate({ database, keys, site, isSandbox: false, isOperator: async () => false, now })
  const chatBodyLimits = { bytesMax: 10_000, readMsMax: 1_000, budget: new BodyBudget({ bytesMax: 100_000 }) }
  const unpaid = new UnpaidRequests({ now, findAccount: async () => undefined })
  const router = new ApiRouter({ app, gate, trustProxy: true, chatBodyLimits, unpaid })
  routeSignIn(router, services)
  routeAccount(router, services)
  routeMembers(router, services)
  routeFunds(router, services, new DepositAddresses({ database, chainServices: { funds }, now: () => addressesMs.now }))
  routeSandbox(router, services)
  app.onError((error, context) => {
    const { status, body } = errorResponse(error, { requestId: 'req_test', publicUrl: origin })
    return context.json(body, status)
  })
  return getRequestListener(app.fetch, { overrideGlobalObjects: false })
}

/** Registers the owner before there is money, as a wallet's first sign-in does. */
async function signIn(
  balance: string,
  ownsBefore = true,
): Promise<DashboardClient & { owner: { partition: number; accountId: string } }> {
  const { database } = ledger
  const account = await createAccount(database, 'test', 1)
  const owner = { partition: account.partition, accountId: account.id }
  const client = new DashboardClient({ origin })
  await client.post('/api/auth/link', { token: await createLoginToken(database, owner, 60) })
  if (ownsBefore) await client.send('PUT', '/api/owner', { address: ownerAddress })
  await creditDeposit(database, { ...owner, id: randomUUID(), amount: parse(balance), source: 'test' })
  // Lists are sorted by the millisecond, and within one by id: what a test adds next must be newer.
  await sleep(2)
  return Object.assign(client, { owner })
}

const form = () => ({ 'idempotency-key': randomUUID() })

test('a withdrawal refuses every address that would lose the money, and says why', async () => {
  const client = await signIn('10')
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  const bad = {
    'zero address': `0x${'0'.repeat(40)}`,
    'USDC contract': usdcAddress,
    'gateway contract': gatewayAddress,
    'own deposit address': accountKeys.ofAccount(client.owner.accountId).address,
    checksum: '0x70997970C51812dc3A010C7d01b50e0d17dc79c8',
    'registered owner': `0x${'e'.repeat(40)}`,
  }
  for (const [why, recipient] of Object.entries(bad)) {
    const answer = await client.send('POST', '/api/withdrawals', { amount: '1', recipient }, form())
    const { error } = (await answer.json()) as { error: { param: string; message: string } }
    assert.deepEqual([answer.status, error.param], [400, 'recipient'], why)
    assert.ok(error.message.includes(why), error.message)
  }
  assert.equal((await readBalance(ledger.database, client.owner)).available, parse('10'))
})

test('the balance says the least withdrawal, which is more than the gateway’s fee', async () => {
  const client = await signIn('10')
  const minimum = async (feeMax: bigint) => {
    await setWithdrawalFeeMax(ledger.database, feeMax)
    const { withdrawal_min, withdrawal_fee_max } = await client.get('/api/balance')
    return [withdrawal_min, withdrawal_fee_max]
  }
  assert.deepEqual(await minimum(250_000n), ['0.250001', '0.25'])
  assert.deepEqual(await minimum(0n), ['0.1', '0'])
})

test('a withdrawal to the owner is paid once, even if its form is sent repeatedly', async () => {
  const client = await signIn('10')
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  const headers = form()
  const body = { amount: '2.5', recipient: '0x70997970C51812dc3A010C7d01b50e0d17dc79C8' }
  const answers = await Promise.all(Array.from({ length: 5 }, () => client.post('/api/withdrawals', body, headers)))
  assert.equal(new Set(answers.map(({ id }) => id)).size, 1)
  assert.deepEqual([answers[0].state, answers[0].amount, answers[0].recipient], ['requested', '2.5', ownerAddress])
  const balance = await client.get('/api/balance')
  assert.deepEqual([balance.available, balance.pending_withdrawals], ['7.5', '2.5'])
  assert.equal((await client.get('/api/withdrawals')).data.length, 1)
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', { ...body, amount: '3' }, headers), [
    422,
    'idempotency_mismatch',
  ])
})

type Step = { readonly name: string; readonly done: boolean; readonly at: string | null }

/** Done steps have times, in order; others have none. */
function assertDated(steps: readonly Step[], done: number): void {
  const times = steps.map(({ at }) => at)
  assert.deepEqual(
    steps.map((step) => step.done),
    steps.map((_, index) => index < done),
  )
  for (const at of times.slice(0, done)) assert.ok(at !== null)
  assert.deepEqual(
    times.slice(done),
    steps.slice(done).map(() => null),
  )
  assert.deepEqual(times.slice(0, done), times.slice(0, done).toSorted())
}

test('every step of a withdrawal that is done has its time, in order', async () => {
  const { database } = ledger
  const client = await signIn('10')
  const { partition, accountId } = client.owner
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  const { id } = await client.post('/api/withdrawals', { amount: '9', recipient: ownerAddress }, form())
  const steps = async (): Promise<readonly Step[]> => (await client.get('/api/withdrawals')).data[0].steps
  assert.deepEqual(
    (await steps()).map(({ name }) => name),
    ['requested', 'settled', 'sent', 'confirmed'],
  )
  assertDated(await steps(), 1)
  const advance = async (attempts: number, to: WithdrawalState) => {
    assert.equal(await advanceTransfer(database, { partition, accountId, id, attempts }, { state: to }), true)
  }
  const withdrawal = await findWithdrawal(database, partition, accountId, id)
  assert.equal(await isSettled(database, withdrawal!), true)
  assertDated(await steps(), 2)
  const [, settled] = await steps()
  assert.equal(await isSettled(database, withdrawal!), true)
  await advance(0, 'sent')
  await advance(1, 'sent')
  assertDated(await steps(), 3)
  await advance(2, 'confirmed')
  assertDated(await steps(), 4)
  assert.deepEqual((await steps())[1], settled, 'the time of a step does not change')
  // A withdrawal that was recovered from the chain has none of these times: the time of the next known step is shown.
  await database.query('update transfers set ready_at = null, sent_at = null where id = $1', [id])
  assertDated(await steps(), 4)
})

test('a changed owner address waits before money goes there', async () => {
  const client = await signIn('10')
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  await ledger.database.query(
    `update accounts set owner_usable_from = clock_timestamp() + interval '1 hour' where id = $1`,
    [client.owner.accountId],
  )
  const body = { amount: '1', recipient: ownerAddress }
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', body, form()), [400, 'invalid_value'])
})

// A21: a stolen session of an account without an owner registered its own address and withdrew at once.
test('the first owner address of an account with money waits, unless a passkey of its holder has confirmed it', async () => {
  const device = new Device()
  const client = new DashboardClient({ origin })
  const { account } = await client.post('/api/auth/passkey/register', { credential: await device.register(client) })
  const [{ partition }] = (await findAccountsNamed(ledger.database, account.id)) as [Account]
  const owner = { partition, accountId: account.id as string }
  await creditDeposit(ledger.database, { ...owner, id: randomUUID(), amount: parse('5'), source: 'test' })
  const thief = `0x${'7'.repeat(40)}`
  const setOwner = (address: string, proof?: unknown) =>
    client.send('PUT', '/api/owner', { address, ...(proof === undefined ? {} : { proof }) })

  // Refused: an assertion for another address, one of a sign-in, and the same one a second time.
  const confirmed = await device.confirm(client, ownerAddress)
  assert.equal((await setOwner(thief, { credential: confirmed })).status, 401)
  assert.equal((await setOwner(ownerAddress, { credential: confirmed })).status, 401)
  assert.equal((await setOwner(thief, { credential: await device.signIn(client) })).status, 401)
  // The account was opened an hour ago.
  for (const change of [
    `update accounts set created_at = created_at - interval '1 hour' where id = $1`,
    `update memberships set owner_since = owner_since - interval '1 hour' where account_id = $1`,
    `update passkeys p set added_at = added_at - interval '1 hour' from memberships m where m.person_id = p.person_id and m.account_id = $1`,
  ])
    await ledger.database.query(change, [account.id])
  // A thief's own passkey, added with the stolen session, confirms nothing before the holder could see it.
  const own = new Device()
  await client.post('/api/auth/passkey/register', { credential: await own.register(client) })
  assert.equal((await setOwner(thief, { credential: await own.confirm(client, thief) })).status, 401)
  const stranger = new DashboardClient({ origin })
  const strangers = new Device()
  await stranger.post('/api/auth/passkey/register', { credential: await strangers.register(stranger) })
  assert.equal((await setOwner(thief, { credential: await strangers.confirm(stranger, thief) })).status, 401)

  const waiting = (await (await setOwner(thief)).json()) as { owner_usable_from: string }
  assert.ok(Date.parse(waiting.owner_usable_from) > Date.now() + ownerCooldownMs - 60_000)
  const body = { amount: '5', recipient: thief }
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', body, form()), [400, 'invalid_value'])

  const challenge = await client.post('/api/owner/challenge', { address: ownerAddress })
  assert.ok(Buffer.from(challenge.options.challenge, 'base64url').toString().includes(ownerAddress))
  const proof = { credential: device.answer(client, challenge.options) }
  const settled = (await (await setOwner(ownerAddress, proof)).json()) as { owner_usable_from: string }
  assert.ok(Date.parse(settled.owner_usable_from) <= Date.now())
  assert.equal((await client.post('/api/withdrawals', { ...body, recipient: ownerAddress }, form())).state, 'requested')
})

test('a wallet of the account confirms the first owner address by a message that names it', async () => {
  const { database } = ledger
  const wallet = createWallet()
  const account = await createAccount(database, 'test', 1)
  const owner = { partition: account.partition, accountId: account.id }
  await addWallet(database, (await entryOf(database, owner)).personId, wallet.address.toLowerCase())
  await creditDeposit(database, { ...owner, id: randomUUID(), amount: parse('5'), source: 'test' })
  const client = new DashboardClient({ origin })
  await client.post('/api/auth/link', { token: await createLoginToken(database, owner, 60) })
  const sign = async (address: string) => {
    const { message } = await client.post('/api/owner/challenge', { address, wallet: wallet.address })
    return { message: message as string, signature: await wallet.signMessage({ message }) }
  }
  const proof = await sign(ownerAddress)
  assert.match(proof.message, new RegExp(`Send withdrawals of my Penny Router account to ${ownerAddress} from now on`))
  const thief = `0x${'7'.repeat(40)}`
  assert.equal((await client.send('PUT', '/api/owner', { address: thief, proof })).status, 401)
  const signInMessage = await signedMessage(client, wallet)
  assert.equal((await client.send('PUT', '/api/owner', { address: thief, proof: signInMessage })).status, 401)
  const answer = await client.send('PUT', '/api/owner', { address: ownerAddress, proof: await sign(ownerAddress) })
  const { owner_usable_from } = (await answer.json()) as { owner_usable_from: string }
  assert.ok(Date.parse(owner_usable_from) <= Date.now())
})

/** A person who opened an account with a wallet an hour ago, which is longer than anything counts as there from the beginning. */
async function openWithWallet() {
  const { database } = ledger
  const wallet = createWallet()
  const client = new DashboardClient({ origin })
  const { account, person } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const [{ partition }] = (await findAccountsNamed(database, account.id)) as [Account]
  const owner = { partition, accountId: account.id as string }
  const hourAgo = `= clock_timestamp() - interval '1 hour'`
  await database.query(`update accounts set created_at ${hourAgo}, event_types = $2 where id = $1`, [
    account.id,
    ['owner.changed', 'wallet.added', 'wallet.removed', 'passkey.added', 'passkey.removed'],
  ])
  await database.query(`update people set created_at ${hourAgo} where id = $1`, [person.id])
  await database.query(`update wallets set added_at ${hourAgo} where person_id = $1`, [person.id])
  await database.query(`update memberships set owner_since ${hourAgo} where person_id = $1`, [person.id])
  await database.query(
    `insert into alert_emails (partition, account_id, address, verified_at, links, links_from) values ($1, $2, $3, now(), 1, now())`,
    [partition, account.id, 'owner@example.com'],
  )
  await creditDeposit(database, { ...owner, id: randomUUID(), amount: parse('5'), source: 'test' })
  return { client, wallet, owner, personId: person.id as string }
}

async function confirmRemoval(client: DashboardClient, remove: string, wallet: ReturnType<typeof createWallet>) {
  const { message } = await client.post('/api/removal-challenge', { remove, wallet: wallet.address })
  return { proof: { message: message as string, signature: await wallet.signMessage({ message }) } }
}

// The owner’s wallet could be removed and then signed in to a new, empty account while the thief’s address became usable.
test('a stolen session cannot lock the owner out until its own withdrawal address takes effect', async () => {
  const { client, wallet, owner, personId } = await openWithWallet()
  const own = `/api/wallets/${wallet.address.toLowerCase()}`
  const [thief, accomplice] = [createWallet(), createWallet()]
  await client.post('/api/wallets', await signedMessage(client, thief))
  const refused = [401, 'sign_in_failed']
  assert.deepEqual(await client.refusal('DELETE', own), refused)
  assert.deepEqual(await client.refusal('DELETE', own, await confirmRemoval(client, wallet.address, thief)), refused)
  const other = await confirmRemoval(client, thief.address, wallet)
  assert.deepEqual(await client.refusal('DELETE', own, other), refused, 'signed for another removal')
  // An owner whom the thief invites can remove nobody, nor can the stolen session leave.
  const second = new DashboardClient({ origin })
  const joined = await second.post('/api/auth/wallet', await signedMessage(second, accomplice))
  await ledger.database.transaction((connection) =>
    addMember(connection, owner, { personId: joined.person.id, role: 'owner' }),
  )
  await second.post('/api/session/account', { account_id: owner.accountId })
  const last = [409, 'last_owner']
  assert.deepEqual(await second.refusal('DELETE', `/api/members/${personId}`), last)
  assert.deepEqual(await second.refusal('PATCH', `/api/members/${personId}`, { role: 'viewer' }), last)
  assert.deepEqual(await client.refusal('DELETE', '/api/membership'), last)
  const stolen = await client.send('PUT', '/api/owner', { address: thief.address })
  assert.ok(Date.parse(((await stolen.json()) as { owner_usable_from: string }).owner_usable_from) > Date.now())
  await client.send('DELETE', '/api/sessions')

  const victim = new DashboardClient({ origin })
  const { account } = await victim.post('/api/auth/wallet', await signedMessage(victim, wallet))
  assert.equal(account.id, owner.accountId)
  await victim.delete(`/api/wallets/${thief.address.toLowerCase()}`)
  await victim.send('DELETE', `/api/members/${joined.person.id}`)
  const back = await victim.send('PUT', '/api/owner', { address: wallet.address })
  assert.ok(Date.parse(((await back.json()) as { owner_usable_from: string }).owner_usable_from) <= Date.now())
  const mails = await ledger.database.query<{ subject: string }>(
    'select subject from alert_mails where account_id = $1 order by created_at',
    [owner.accountId],
  )
  assert.deepEqual(
    mails.map(({ subject }) => /wallet|address/.exec(subject)?.[0]),
    ['wallet', 'address', 'wallet', 'address'],
  )
  const events = await ledger.database.query<{ type: string }>(
    'select type from events where account_id = $1 order by number',
    [owner.accountId],
  )
  assert.deepEqual(
    events.map(({ type }) => type),
    ['wallet.added', 'owner.changed', 'wallet.removed', 'owner.changed'],
  )
})

test('a person who lost a device removes it: confirmed by another that is old enough, or by itself', async () => {
  const { client, wallet, personId } = await openWithWallet()
  const [next, third] = [createWallet(), createWallet()]
  await client.post('/api/wallets', await signedMessage(client, next))
  const own = `/api/wallets/${wallet.address.toLowerCase()}`
  assert.equal((await client.send('DELETE', own, await confirmRemoval(client, wallet.address, next))).status, 401)
  await ledger.database.query(
    `update wallets set added_at = added_at - interval '25 hours' where person_id = $1 and address = $2`,
    [personId, next.address.toLowerCase()],
  )
  const established = (await client.get('/api/session')).account.wallets.map(
    (one: { established: boolean }) => one.established,
  )
  assert.deepEqual(established, [true, true])
  assert.equal((await client.send('DELETE', own, await confirmRemoval(client, wallet.address, next))).status, 200)
  await client.post('/api/wallets', await signedMessage(client, third))
  const itself = await confirmRemoval(client, next.address, next)
  assert.equal((await client.send('DELETE', `/api/wallets/${next.address.toLowerCase()}`, itself)).status, 200)
})

test('a withdrawal needs an amount above 0, at most the available balance, and an idempotency key', async () => {
  const client = await signIn('1', false)
  const recipient = ownerAddress
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', { amount: '1', recipient }, form()), [
    400,
    'invalid_value',
  ])
  await ledger.database.query(
    'update accounts set owner_address = $2, owner_usable_from = clock_timestamp() where id = $1',
    [client.owner.accountId, ownerAddress],
  )
  const refused = (amount: string, headers: Record<string, string>) =>
    client.refusal('POST', '/api/withdrawals', { amount, recipient }, headers)
  assert.deepEqual(await refused('1.000001', form()), [402, 'insufficient_balance'])
  assert.deepEqual(await refused('0', form()), [400, 'invalid_value'])
  assert.deepEqual(await refused('-1', form()), [400, 'invalid_value'])
  assert.deepEqual(await refused('0.0000001', form()), [400, 'invalid_value'])
  assert.deepEqual(await refused('1', {}), [400, 'missing_required_parameter'])
})

test('a withdrawal is at least 0.10 USDC or everything that is left, and the refusal has both numbers', async () => {
  const client = await signIn('0.15')
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  const withdraw = (amount: string) =>
    client.send('POST', '/api/withdrawals', { amount, recipient: ownerAddress }, form())
  const messageOf = async (answer: Response) => ((await answer.json()) as { error: { message: string } }).error.message
  const dust = await withdraw('0.000001')
  assert.equal(dust.status, 400)
  assert.equal(
    await messageOf(dust),
    '0.000001 USDC cannot be withdrawn: the minimum is 0.1 USDC, or everything that is left (0.15 USDC).',
  )
  assert.equal((await withdraw('0.1')).status, 202)
  assert.equal((await withdraw('0.049999')).status, 400)
  assert.equal((await withdraw('0.05')).status, 202)
  assert.equal((await client.get('/api/balance')).available, '0')

  const { owner } = client
  await creditDeposit(ledger.database, { ...owner, id: randomUUID(), amount: parse('0.02'), source: 'test' })
  const again = await withdraw('0.02')
  assert.equal(again.status, 400)
  assert.match(
    await messageOf(again),
    /^0\.02 USDC cannot be withdrawn yet: less than 0\.1 USDC can be withdrawn once in 24 hours, next at 20\d\d-/,
  )
  await ledger.database.query(
    `update transfers set created_at = created_at - interval '24 hours', state = 'confirmed' where account_id = $1`,
    [owner.accountId],
  )
  assert.equal((await withdraw('0.02')).status, 202)
})

test('at most three withdrawals of an account are open, even under concurrent requests', async () => {
  const client = await signIn('10')
  await client.send('PUT', '/api/owner', { address: ownerAddress })
  const body = { amount: '0.5', recipient: ownerAddress }
  const headers = Array.from({ length: 8 }, form)
  const send = () => Promise.all(headers.map((header) => client.send('POST', '/api/withdrawals', body, header)))
  const answers = await send()
  assert.deepEqual(answers.map(({ status }) => status).sort(), [202, 202, 202, 429, 429, 429, 429, 429])
  const refused = answers.find(({ status }) => status === 429)!
  const { error } = (await refused.json()) as { error: { code: string; message: string } }
  assert.equal(error.code, 'rate_limited')
  assert.equal(
    error.message,
    '3 withdrawals of this account are open; the limit is 3. Try again when one of them has been paid.',
  )
  assert.equal((await client.get('/api/balance')).available, '8.5')
  // Stored withdrawals are returned as before, and one that has ended makes room for another.
  assert.deepEqual((await send()).map(({ status }) => status).sort(), answers.map(({ status }) => status).sort())
  await ledger.database.query(
    `update transfers set state = 'confirmed' where id = (select id from transfers where account_id = $1 limit 1)`,
    [client.owner.accountId],
  )
  assert.equal((await client.send('POST', '/api/withdrawals', body, form())).status, 202)
  assert.equal((await client.send('POST', '/api/withdrawals', body, form())).status, 429)
})

test('an account gets its deposit address when it looks at its deposits, and one network cannot make many of them', async () => {
  const { database } = ledger
  const network = { 'x-forwarded-for': '198.51.100.7' }
  const watched = async () => (await listDepositAccounts(database)).map(({ id }) => id)
  const join = async () => {
    const client = await signIn('1', false)
    const look = async (headers = network) => {
      const answer = await client.send('GET', '/api/deposits', undefined, headers)
      return ((await answer.json()) as { deposit_address: string | null }).deposit_address
    }
    return { id: client.owner.accountId, client, look }
  }
  const { id, client, look } = await join()
  assert.equal((await client.get('/api/session')).account.deposit_address, null)
  assert.equal((await client.send('PUT', '/api/owner', { address: ownerAddress })).status, 200)
  assert.ok(!(await watched()).includes(id), 'neither the sign-in nor the owner address makes it be watched')
  const { address } = accountKeys.ofAccount(id)
  assert.deepEqual(await Promise.all([look(), look()]), [address, address])
  assert.ok((await watched()).includes(id))
  assert.equal((await client.get('/api/session')).account.deposit_address, address)

  // The rest of 60, less one for the second look.
  let given = 0
  for (let count = 0; count < 62; count += 1) given += (await (await join()).look()) === null ? 0 : 1
  assert.ok(given === 58 || given === 59, `${given} more`)
  const late = await join()
  assert.equal(await late.look(), null)
  assert.equal(await look(), address, 'who has one is not held up')
  const elsewhere = await join()
  assert.notEqual(await elsewhere.look({ 'x-forwarded-for': '198.51.100.8' }), null)
  addressesMs.now += 10_000
  assert.equal(await late.look(), accountKeys.ofAccount(late.id).address)
})

test('a deposit is shown step by step, from the first sight of it to the balance', async () => {
  const { database } = ledger
  const client = await signIn('1')
  const { partition, accountId } = client.owner
  const look = async () => {
    const { data, deposit_address } = await client.get('/api/deposits')
    assert.equal(deposit_address, accountKeys.ofAccount(accountId).address)
    const [newest] = data
    return [newest.state, newest.steps.filter(({ done }: { done: boolean }) => done).length]
  }
  const txHash = Buffer.alloc(32, 7)
  await database.query(
    `insert into arrivals (partition, account_id, block, log_index, tx_hash, sender, amount) values ($1, $2, 5, 0, $3, '0x1', 2000000)`,
    [partition, accountId, txHash],
  )
  assert.deepEqual(await look(), ['seen', 1])
  assert.equal((await client.get('/api/balance')).pending_deposits, '2')
  const sweep = randomUUID()
  await database.query(
    `insert into sweeps (partition, id, account_id, amount, nonce, state) values ($1, $2, $3, 2000000, 0, 'sent')`,
    [partition, sweep, accountId],
  )
  await database.query('update arrivals set sweep_id = $2 where account_id = $1', [accountId, sweep])
  assert.deepEqual(await look(), ['sweeping', 1])
  await database.query("update sweeps set state = 'confirmed', tx_hash = $2 where id = $1", [sweep, txHash])
  assert.deepEqual(await look(), ['confirmed', 2])
  await creditDeposit(database, { partition, accountId, id: sweep, amount: parse('2'), source: 'chain' })
  await database.query("update sweeps set state = 'credited' where id = $1", [sweep])
  assert.deepEqual(await look(), ['credited', 3])
  // The sweep is noted a moment after the credit that it brought.
  assertDated((await client.get('/api/deposits')).data[0].steps, 3)
  const balance = await client.get('/api/balance')
  assert.deepEqual([balance.available, balance.pending_deposits], ['3', '0'])
  const page = await client.get('/api/deposits?limit=1')
  const next = await client.get(`/api/deposits?limit=1&cursor=${page.next_cursor}`)
  assert.deepEqual([page.data.length, next.data.length, next.has_more], [1, 1, false])
  for (const list of ['deposits', 'withdrawals', 'adjustments']) {
    const path = `/api/${list}?cursor=2026-01-01T00:00:00.000Z_abc`
    assert.deepEqual(await client.refusal('GET', path), [400, 'invalid_value'], list)
  }
})

test('money that came over x402 is credited with the transaction of its batch', async () => {
  const { database } = ledger
  const client = await signIn('1')
  const { partition, accountId } = client.owner
  const id = randomUUID()
  await creditDeposit(database, { partition, accountId, id, amount: parse('2'), source: 'x402' })
  const steps = async () => {
    const { data } = await client.get('/api/deposits')
    return data[0].steps.map(({ name, tx_hash }: { name: string; tx_hash: string | null }) => [name, tx_hash])
  }
  assert.deepEqual(await steps(), [['credited', null]])
  await database.query('update deposits set tx_hash = $2 where id = $1', [id, Buffer.alloc(32, 7)])
  assert.deepEqual(await steps(), [['credited', `0x${'07'.repeat(32)}`]])
})

test('a wallet’s first sign-in leaves in the log that withdrawals go to it, and its second does not', async () => {
  const wallet = createWallet()
  const address = wallet.address.toLowerCase()
  const client = new DashboardClient({ origin })
  const before = trail.length
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const by = { account_id: account.id, network: client.address }
  assert.deepEqual(trail.slice(before), [
    { event: 'owner_changed', ...by, method: undefined, address },
    { event: 'signed_in', ...by, method: 'wallet' },
    { event: 'signed_in', ...by, method: 'wallet' },
  ])
})

// A stolen session replaced every credential by its own wallet, whose sign-in then registered it as the first owner.
test('a wallet that a stolen session added registers no owner address by signing in, even as the last credential', async () => {
  const device = new Device()
  const client = new DashboardClient({ origin })
  const { account } = await client.post('/api/auth/passkey/register', { credential: await device.register(client) })
  const [{ partition }] = (await findAccountsNamed(ledger.database, account.id)) as [Account]
  await creditDeposit(ledger.database, {
    partition,
    accountId: account.id,
    id: randomUUID(),
    amount: parse('5'),
    source: 'test',
  })
  const { personId } = await entryOf(ledger.database, { partition, accountId: account.id })
  await ledger.database.query(`update accounts set created_at = created_at - interval '1 hour' where id = $1`, [
    account.id,
  ])
  const thief = createWallet()
  await ledger.database.transaction((connection) => addWallet(connection, personId, thief.address.toLowerCase()))
  await ledger.database.query('delete from passkeys where person_id = $1', [personId])
  const signedIn = await client.post('/api/auth/wallet', await signedMessage(client, thief))
  assert.deepEqual([signedIn.account.id, signedIn.account.owner_address], [account.id, null])
  const body = { amount: '5', recipient: thief.address }
  assert.deepEqual(await client.refusal('POST', '/api/withdrawals', body, form()), [400, 'invalid_value'])
})

test('sandbox routes do not exist where money is real', async () => {
  const client = await signIn('1')
  assert.equal((await client.send('POST', '/api/auth/local')).status, 404)
  for (const path of [
    '/api/faucet',
    '/api/sandbox/mine',
    '/api/sandbox/fail-next',
    '/api/sandbox/slow',
    '/api/sandbox/reset',
  ])
    assert.deepEqual(await client.refusal('POST', path, {}), [404, 'unknown_url'], path)
})
