import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import {
  createWallet,
  DashboardClient,
  type Json,
  signedMessage,
  signInNew,
} from '../../test/support/dashboard-client.ts'
import { completed, created, text, type UpstreamExchange } from '../../test/support/scripted-upstream.ts'
import { postChat } from '../../test/support/service.ts'
import { serviceSuite } from '../../test/support/suites.ts'
import { until } from '../../test/support/until.ts'
import type { AccountRef } from '../db/account-ref.ts'
import { createLoginToken } from '../identity/login-links.ts'
import { revokeAccess } from '../identity/revoke-access.ts'
import { findAccount } from '../ledger/accounts.ts'
import { closeAccount } from '../ledger/close-account.ts'
import { creditDeposit } from '../ledger/deposits.ts'
import { advanceTransfer } from '../ledger/transfers.ts'
import { requestWithdrawal, setWithdrawalFeeMax } from '../ledger/withdrawals.ts'
import { parse, zero } from '../money/usdc.ts'

// An account is closed when its money is withdrawn, and then it can neither be spent from nor signed in to. Its ledger stays.

const suite = serviceSuite({ TRUST_PROXY: '1' })
const question = { messages: [{ role: 'user', content: 'What is a penny?' }], max_tokens: 100 }

function answerAtOnce(exchange: UpstreamExchange): void {
  exchange.send(created, text('A coin.'), completed({ input_tokens: 11, output_tokens: 7, total_tokens: 18 }))
  exchange.end()
}

async function ownerOf(accountId: string): Promise<AccountRef> {
  const [row] = await suite.service.database.query<{ partition: number }>(
    'select partition from accounts where id = $1',
    [accountId],
  )
  return { partition: row!.partition, accountId }
}

async function refusalOf(client: DashboardClient): Promise<{ status: number; error: Json }> {
  const response = await client.send('DELETE', '/api/account')
  const { error } = (await response.json()) as Json
  return { status: response.status, error }
}

/** Takes all of an account's money out, as its holder would. */
async function withdrawAll(client: DashboardClient & { accountId: string }): Promise<void> {
  const { database } = suite.service
  const owner = await ownerOf(client.accountId)
  const { available } = await client.get('/api/balance')
  const order = {
    ...owner,
    id: randomUUID(),
    amount: parse(available),
    recipient: `0x${'1'.repeat(40)}`,
    min: parse('0.1'),
  }
  await advanceTransfer(database, await requestWithdrawal(database, order), { state: 'confirmed', fee: 0n })
}

test('an account with money to withdraw is not closed, and both numbers are said', async () => {
  const client = await signInNew(suite.service, '2.5')
  await setWithdrawalFeeMax(suite.service.database, parse('0.1'))
  const { status, error } = await refusalOf(client)
  await setWithdrawalFeeMax(suite.service.database, zero)
  assert.deepEqual([status, error.code], [409, 'account_not_closable'])
  assert.equal(
    error.message,
    '2.5 USDC is available. An account can be closed with at most 0.1 USDC left, the maximum withdrawal fee. Withdraw first.',
  )
  assert.deepEqual([error.available_atomic, error.withdrawal_fee_max_atomic], ['2500000', '100000'])
  assert.equal((await client.get('/api/balance')).available, '2.5', 'it is as it was')
})

test('an account whose money is on its way is not closed: held, withdrawn or arriving', async () => {
  const { database } = suite.service
  const client = await signInNew(suite.service, '1')
  const owner = await ownerOf(client.accountId)
  const { secret } = await client.post('/api/keys', { name: 'open' })
  const arrived = Promise.withResolvers<UpstreamExchange>()
  suite.upstream.answer = arrived.resolve
  const running = postChat(suite.service, secret, question)
  const exchange = await arrived.promise
  assert.match((await refusalOf(client)).error.message, /^1 request is open and holds 0\.\d+ USDC\. /)
  answerAtOnce(exchange)
  assert.equal((await running).status, 200)
  await (await running).arrayBuffer()

  const { available } = await client.get('/api/balance')
  const order = {
    ...owner,
    id: randomUUID(),
    amount: parse(available),
    recipient: `0x${'1'.repeat(40)}`,
    min: parse('0.1'),
  }
  const withdrawal = await requestWithdrawal(database, order)
  assert.equal(
    (await refusalOf(client)).error.message,
    `${available} USDC is being withdrawn. Close the account when it has arrived.`,
  )
  await advanceTransfer(database, withdrawal, { state: 'confirmed', fee: 0n })

  await database.query(
    `insert into arrivals (partition, account_id, block, log_index, tx_hash, sender, amount) values ($1, $2, 1, 0, $3, '0x', 70000)`,
    [owner.partition, owner.accountId, randomBytes(32)],
  )
  const { status, error } = await refusalOf(client)
  assert.deepEqual([status, error.code], [409, 'account_not_closable'])
  assert.match(error.message, /^0\.07 USDC is being deposited\. /)
  // Less than is ever swept: anyone can send that much, and it must not keep the account open.
  await database.transaction((connection) => closeAccount(connection, owner, parse('0.1')))
})

test('a closed account refuses its keys and its holder, and its ledger is unchanged', async () => {
  const { database } = suite.service
  suite.upstream.answer = answerAtOnce
  const wallet = createWallet()
  const client = Object.assign(new DashboardClient(suite.service), { accountId: '' })
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  client.accountId = account.id
  await suite.service.credit(account.id, '1')
  await client.patch('/api/account', { name: 'Ada Lovelace', alerts: { days_below: 9 } })
  const keys = [await client.post('/api/keys', { name: 'one' }), await client.post('/api/keys', { name: 'two' })]
  await client.patch(`/api/keys/${keys[1].id}`, { disabled: true })
  const idempotency = { headers: { 'idempotency-key': randomUUID() } }
  const answer = await postChat(suite.service, keys[0].secret, question, idempotency)
  await answer.arrayBuffer()
  const elsewhere = new DashboardClient(suite.service)
  await elsewhere.post('/api/auth/wallet', await signedMessage(elsewhere, wallet))
  await createLoginToken(database, await ownerOf(account.id), 600)
  await withdrawAll(client)
  const books = () =>
    Promise.all(
      ['requests', 'adjustments', 'deposits', 'transfers', 'payments'].map((table) =>
        database.query(`select * from ${table} where account_id = $1 order by created_at`, [account.id]),
      ),
    )
  const before = await books()

  assert.equal(await client.delete('/api/account'), undefined)

  assert.deepEqual(await books(), before)
  for (const { secret } of keys) {
    const refused = await postChat(suite.service, secret, question, idempotency)
    const { error } = (await refused.json()) as Json
    assert.deepEqual([refused.status, error.code], [401, 'api_key_revoked'])
  }
  for (const signedIn of [client, elsewhere]) assert.equal((await signedIn.get('/api/session')).signed_in, false)
  for (const table of [
    'sessions',
    'memberships',
    'login_links',
    'invitations',
    'management_keys',
    'replays',
    'alert_rules',
    'alerts',
  ])
    assert.deepEqual(await database.query(`select from ${table} where account_id = $1`, [account.id]), [], table)
  const owner = await ownerOf(account.id)
  const closed = (await findAccount(database, owner.partition, account.id))!
  assert.equal(closed.name, `Account ${account.id.slice(0, 8)}`)
  assert.ok(closed.closedAt instanceof Date)
  const again = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.notEqual(again.account.id, account.id, 'the wallet is nobody’s: it opens an account of its own')
})

test('closing needs a sign-in of the last minutes, and the sandbox’s demo account is not closed', async () => {
  const client = await signInNew(suite.service)
  await suite.service.database.query(
    `update sessions set created_at = clock_timestamp() - interval '16 minutes' where account_id = $1`,
    [client.accountId],
  )
  assert.deepEqual(await client.refusal('DELETE', '/api/account'), [403, 'recent_sign_in_required'])
  const developer = new DashboardClient(suite.service)
  await developer.post('/api/auth/local')
  const { status, error } = await refusalOf(developer)
  assert.deepEqual([status, error.code], [409, 'account_not_closable'])
  assert.match(error.message, /demo account/)
  assert.equal((await developer.get('/api/session')).signed_in, true)
})

// What is too little to withdraw can still be spent, so that requests race with the closing for it.
test('requests that race with the closing are held before it or refused, never held after it', async () => {
  const { database } = suite.service
  suite.upstream.answer = answerAtOnce
  await setWithdrawalFeeMax(database, parse('0.5'))
  try {
    for (let round = 0; round < 5; round += 1) {
      const client = await signInNew(suite.service, '0.4')
      const { secret } = await client.post('/api/keys', { name: 'racing' })
      const asked = Array.from({ length: 8 }, async () => {
        const answer = await postChat(suite.service, secret, question)
        await answer.arrayBuffer()
        return answer.status
      })
      let status = 409
      while (status === 409) status = (await client.send('DELETE', '/api/account')).status
      assert.equal(status, 204)
      for (const answered of await Promise.all(asked)) assert.ok(answered === 200 || answered === 401, `${answered}`)
      const late = await database.query(
        `select r.id from requests r join accounts a on a.partition = r.partition and a.id = r.account_id
          where a.id = $1 and r.status <> 'refused' and coalesce(r.ended_at, 'infinity') > a.closed_at`,
        [client.accountId],
      )
      assert.deepEqual(late, [])
    }
  } finally {
    await setWithdrawalFeeMax(database, zero)
  }
})

test('the closing waits for what moves the account’s money, and then sees it', async () => {
  const { database } = suite.service
  const client = await signInNew(suite.service)
  const owner = await ownerOf(client.accountId)
  const closing = await database.transaction(async (connection) => {
    await creditDeposit(connection, { ...owner, id: randomUUID(), amount: parse('1'), source: 'test' })
    const asked = refusalOf(client)
    await until(async () => (await waiting()) === 1)
    return { asked }
  })
  const { status, error } = await closing.asked
  assert.deepEqual([status, error.code, error.available_atomic], [409, 'account_not_closable', '1000000'])
})

test('no key, wallet or session is created while the account is being closed', async () => {
  const { database } = suite.service
  const wallet = createWallet()
  const client = new DashboardClient(suite.service)
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const owner = await ownerOf(account.id)
  const elsewhere = new DashboardClient(suite.service)
  const [added, signed] = [await signedMessage(client, createWallet()), await signedMessage(elsewhere, wallet)]
  const late = await database.transaction(async (connection) => {
    await closeAccount(connection, owner, zero)
    const asked = [
      client.refusal('POST', '/api/keys', { name: 'late' }),
      client.refusal('POST', '/api/wallets', added),
      elsewhere.refusal('POST', '/api/auth/wallet', signed),
    ]
    await until(async () => (await waiting()) === asked.length)
    await revokeAccess(connection, owner)
    return asked
  })
  for (const refusal of late) assert.deepEqual(await refusal, [401, 'session_required'])
  for (const table of ['sessions', 'memberships', 'api_keys'])
    assert.deepEqual(await database.query(`select from ${table} where account_id = $1`, [account.id]), [], table)
  assert.deepEqual(await database.query('select from wallets where address = $1', [wallet.address.toLowerCase()]), [])
})

/** How many statements of this ledger wait for a lock. */
async function waiting(): Promise<number> {
  const [row] = await suite.service.database.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  )
  return row!.count
}

test('the operator’s link opens a closed account again, with its history and without its keys', async () => {
  const { database } = suite.service
  const client = await signInNew(suite.service)
  const { secret } = await client.post('/api/keys', { name: 'before' })
  await client.delete('/api/account')
  const owner = await ownerOf(client.accountId)
  const { account } = await client.post('/api/auth/link', { token: await createLoginToken(database, owner, 60) })
  assert.equal(account.id, client.accountId)
  assert.deepEqual([account.wallets, account.passkeys], [[], []])
  assert.equal((await findAccount(database, owner.partition, owner.accountId))!.closedAt, undefined)
  assert.equal((await postChat(suite.service, secret, question)).status, 401)
  assert.equal((await client.post('/api/keys', { name: 'after' })).status, 'active')
})
