import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { readConfig } from '../../src/config/config.ts'
import { createLoginToken } from '../../src/identity/login-links.ts'
import { addWallet } from '../../src/identity/wallets.ts'
import { createAccount } from '../../src/ledger/accounts.ts'
import { readBalance } from '../../src/ledger/balance.ts'
import { findDepositAddress, requestDepositAddress } from '../../src/ledger/deposit-addresses.ts'
import type { Service } from '../../src/run/service.ts'
import { createWallet, DashboardClient, type Json, signedMessage } from '../support/dashboard-client.ts'
import { startTestedService } from '../support/documented-answers.ts'
import { entryOf } from '../support/people.ts'
import { untilFits } from '../support/until.ts'

// The whole sandbox with its chain and gateway, seen from the dashboard: money in, spent, settled, and out again.

const dataDir = mkdtempSync(join(tmpdir(), 'penny-funds-'))
let service: Service
before(async () => {
  const config = readConfig({
    PORT: '0',
    WEB_PROCESSES: '1',
    DATA_DIR: dataDir,
    LOG_LEVEL: 'silent',
    TRUST_PROXY: '1',
    GATEWAY_BATCH_MS: '300',
    DRAIN_MS: '2000',
    SANDBOX_TOKENS_PER_SECOND: '0',
  })
  service = await startTestedService(config)
})
after(async () => {
  await service?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

async function depositAddress(client: DashboardClient): Promise<string> {
  return (await client.get('/api/deposits')).deposit_address
}

test('from a wallet to test money, a paid request on chain, its receipt, and the rest back in the wallet', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  const wallet = createWallet()
  const { account, chain } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.equal(account.owner_address, wallet.address.toLowerCase())
  assert.equal(
    account.deposit_address,
    null,
    'an address is watched on the chain for good: it is assigned when it is needed',
  )

  await client.post('/api/faucet')
  const address = await depositAddress(client)
  assert.match(address, /^0x[0-9a-fA-F]{40}$/)
  const deposits = await untilFits(
    () => client.get('/api/deposits'),
    ({ data }) => data[0]?.state === 'credited',
  )
  assert.deepEqual(
    deposits.data[0].steps.map(({ name, done }: Json) => [name, done]),
    [
      ['seen', true],
      ['swept', true],
      ['credited', true],
    ],
  )
  assert.equal((await client.get('/api/balance')).available, '25')

  const key = await client.post('/api/keys', { name: 'first' })
  const answer = await fetch(`${service.publicUrl}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'What is a penny?' }], max_tokens: 100 }),
  })
  assert.equal(answer.status, 200)
  await answer.arrayBuffer()
  const id = answer.headers.get('x-router-request-id')
  const paid = await untilFits(
    () => client.get(`/api/requests/${id}`),
    ({ settlement, receipt }) => settlement.tx_hash !== null && receipt !== null,
  )
  assert.equal((await client.get(`/api/requests?find=${paid.settlement.tx_hash}`)).data[0].id, id)
  assert.deepEqual([paid.settlement.batch_position, paid.settlement.batch_size], [1, 1])
  const receipt = await new DashboardClient(client).get(`/api/receipts/${id}`)
  assert.equal(receipt.id, id)

  const form = () => ({ 'idempotency-key': crypto.randomUUID() })
  for (const recipient of [`0x${'0'.repeat(40)}`, chain.usdc_address, address, `0x${'e'.repeat(40)}`]) {
    const refusal = await client.refusal('POST', '/api/withdrawals', { amount: '1', recipient }, form())
    assert.deepEqual(refusal, [400, 'invalid_value'], recipient)
  }
  const { available } = await client.get('/api/balance')
  const requested = await client.post('/api/withdrawals', { amount: available, recipient: wallet.address }, form())
  const sent = await untilFits(
    async () => (await client.get('/api/withdrawals')).data[0],
    ({ state }) => state === 'confirmed' || state === 'failed',
  )
  assert.deepEqual([sent.id, sent.state, sent.amount], [requested.id, 'confirmed', available])
  assert.match(sent.tx_hash, /^0x[0-9a-f]{64}$/)
  const tookMs = Date.parse(sent.changed_at) - Date.parse(sent.created_at)
  const told = await client.get('/api/withdrawals')
  assert.equal(told.median_of, 1)
  assert.ok(Math.abs(told.median_ms - tookMs) <= 1, `${told.median_ms} is what the only one took: ${tookMs}`)
  assert.equal((await client.get('/api/balance')).available, '0')
})

test('a deposit to a closed account is credited, and its holder can withdraw it with the operator’s link', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  const wallet = createWallet()
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  const sender = new DashboardClient({ origin: service.publicUrl })
  await sender.post('/api/auth/local')
  const address = await depositAddress(client)
  await client.delete('/api/account')
  await sender.post('/api/faucet', { wallet: address })

  const [row] = await service.database.query<{ partition: number }>('select partition from accounts where id = $1', [
    account.id,
  ])
  const owner = { partition: row!.partition, accountId: account.id as string }
  await untilFits(
    () => readBalance(service.database, owner),
    ({ available }) => available === 25_000_000n,
  )
  await client.post('/api/auth/link', { token: await createLoginToken(service.database, owner, 60) })
  const form = { 'idempotency-key': crypto.randomUUID() }
  await client.post('/api/withdrawals', { amount: '25', recipient: wallet.address }, form)
  await untilFits(
    async () => (await client.get('/api/withdrawals')).data[0],
    ({ state }) => state === 'confirmed',
  )
  await client.delete('/api/account')
})

test('the sandbox’s controls do what they say', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  await client.post('/api/auth/local')
  await client.post('/api/faucet')
  await untilFits(
    () => client.get('/api/balance'),
    ({ available }) => available === '25',
  )
  const before = BigInt((await client.post('/api/sandbox/mine', { blocks: 1 })).block)
  assert.ok(BigInt((await client.post('/api/sandbox/mine', { blocks: 10 })).block) >= before + 10n)
  await client.post('/api/sandbox/fail-next')
  const key = await client.post('/api/keys', { name: 'unlucky' })
  const body = { key_id: key.id, messages: [{ role: 'user', content: 'hi' }] }
  assert.equal((await client.send('POST', '/api/playground', body)).status, 502)
  assert.equal((await client.send('POST', '/api/playground', body)).status, 200)
})

test('test money is not sent to the zero address or the token contract', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  const { chain } = await client.post('/api/auth/local')
  for (const wallet of [`0x${'0'.repeat(40)}`, chain.usdc_address]) {
    assert.deepEqual(await client.refusal('POST', '/api/faucet', { wallet }), [400, 'invalid_value'])
  }
})

test('a refused playground request names the deposit address, as the API does', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  await client.post('/api/auth/wallet', await signedMessage(client, createWallet()))
  const key = await client.post('/api/keys', { name: 'poor' })
  const body = { key_id: key.id, messages: [{ role: 'user', content: 'hi' }] }
  const answer = await client.send('POST', '/api/playground', body)
  const { error } = (await answer.json()) as Json
  assert.deepEqual([answer.status, error.code], [402, 'insufficient_balance'])
  assert.match(error.deposit_address, /^0x[0-9a-f]{40}$/)
  assert.equal(error.deposit_address, await depositAddress(client))
})

test('accounts that only sign up are not watched on the chain; a command asks for an address, and gets it', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, createWallet()))
  await client.get('/api/balance')
  const [row] = await service.database.query<{ partition: number }>('select partition from accounts where id = $1', [
    account.id,
  ])
  const owner = { partition: row!.partition, id: account.id as string }
  // The settlement process has looked for accounts without an address once the other one has its own.
  const { id } = await createAccount(service.database, 'asks', 1)
  await untilFits(
    () => requestDepositAddress(service.database, { partition: 0, id }),
    (found) => found !== undefined,
  )
  assert.equal(await findDepositAddress(service.database, owner), undefined)
  await untilFits(
    () => requestDepositAddress(service.database, owner),
    (found) => found !== undefined,
  )
  assert.equal(await depositAddress(client), await findDepositAddress(service.database, owner))
})

test('a wallet whose first sign-in was cut off is registered as owner by the next', async () => {
  const client = new DashboardClient({ origin: service.publicUrl })
  const wallet = createWallet()
  const { partition, id } = await createAccount(service.database, 'cut off', 1)
  const { personId } = await entryOf(service.database, { partition, accountId: id })
  await addWallet(service.database, personId, wallet.address.toLowerCase())
  const { account } = await client.post('/api/auth/wallet', await signedMessage(client, wallet))
  assert.deepEqual([account.id, account.owner_address], [id, wallet.address.toLowerCase()])
})
