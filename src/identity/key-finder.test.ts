import assert from 'node:assert/strict'
import { test } from 'node:test'
import { codeOf, openLedger, openPayer } from '../../test/support/ledger.ts'
import { replaceIn } from '../../test/support/replace-in-database.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import type { Database } from '../db/database.ts'
import { createAccount } from '../ledger/accounts.ts'
import { KeyChangedError } from '../ledger/holds.ts'
import { createRequestId } from '../ledger/request-id.ts'
import { fromAtomic } from '../money/usdc.ts'
import { createKey, revokeKey, rotateKey, updateKey } from './api-keys.ts'
import { type Bearer, KeyFinder, RevokedApiKeyError } from './key-finder.ts'

const ledger = ledgerSuite()

test('concurrent look-ups of keys share one query', async () => {
  const secrets = await createKeys(40, 1)
  const { database, statements } = watched(ledger.database)
  const finder = new KeyFinder({ database, now: () => 0 })
  const unknown = `${secrets[0]!.slice(0, -4)}zzzz`
  const bearers = await Promise.allSettled([...secrets, ...secrets, unknown].map((secret) => finder.find(secret)))
  const found = bearers.flatMap((bearer) => (bearer.status === 'fulfilled' ? [bearer.value.keyId] : []))
  assert.equal(found.length, 80)
  assert.equal(new Set(found).size, 40)
  assert.ok(bearers.at(-1)!.status === 'rejected')
  assert.deepEqual(statements, ['find_secrets', 'find_keys'])
  // Each of them is remembered.
  await Promise.all(secrets.map((secret) => finder.find(secret)))
  assert.equal(statements.length, 2)
})

test('only keys in the partition that is down are refused', async () => {
  const secrets = await createKeys(24, 4)
  const { database } = watched(ledger.database, (name, [partition]) => {
    if (name === 'find_keys' && partition === 2) throw new Error('the worker is down')
  })
  const finder = new KeyFinder({ database, now: () => 0 })
  const working = new KeyFinder({ database: ledger.database, now: () => 0 })
  const found = await Promise.allSettled(secrets.map((secret) => finder.find(secret)))
  const partitions = await Promise.all(secrets.map(async (secret) => (await working.find(secret)).partition))
  assert.deepEqual(
    found.map(({ status }) => status === 'fulfilled'),
    partitions.map((partition) => partition !== 2),
  )
  const failed = found.find((one) => one.status === 'rejected')
  assert.match(String(failed?.reason), /the worker is down/)
})

test('a disabled key is refused until it is enabled again', async () => {
  const { partition, id: accountId } = await createAccount(ledger.database, 'test', 1)
  const { id, secret } = await createKey(ledger.database, { partition, accountId, name: 'test' })
  const finder = new KeyFinder({ database: ledger.database, now: () => 0 })
  await updateKey(ledger.database, id, { disabled: true })
  await assert.rejects(finder.find(secret), /This API key is disabled/)
  await updateKey(ledger.database, id, { disabled: false })
  assert.equal((await finder.find(secret)).keyId, id)
})

test('a secret that was rotated and a key that was revoked elsewhere are remembered here, and buy nothing', async () => {
  const holds = await openLedger(ledger.database)
  const payer = await openPayer(ledger.database, 10_000n)
  const finder = new KeyFinder({ database: ledger.database, now: () => 0 })
  const account = { partition: payer.partition, accountId: payer.accountId }
  const place = async ({ keyId, options }: Bearer) => {
    const requestId = createRequestId(payer.partition, Date.now())
    const call = { requestId, model: 'gpt-5.6-terra', stream: false, maxTokens: 10, quote: fromAtomic(1_000n) }
    return codeOf(await holds.place({ ...call, payer: { ...account, keyId }, optionsVersion: options.version }))
  }
  const rotated = await createKey(ledger.database, { ...account, name: 'rotated' })
  const revoked = await createKey(ledger.database, { ...account, name: 'revoked' })
  const before = await Promise.all([finder.find(rotated.secret), finder.find(revoked.secret)])
  const { secret } = (await rotateKey(ledger.database, rotated.id, { overlapSeconds: 0 }))!
  await revokeKey(ledger.database, revoked.id)
  const after = await Promise.all([finder.find(rotated.secret), finder.find(revoked.secret)])
  assert.deepEqual(after, before)
  await assert.rejects(place(after[0]!), KeyChangedError)
  assert.equal(await place(after[1]!), 'api_key_revoked')
  for (const bearer of after) await assert.rejects(finder.currentOptions(bearer), RevokedApiKeyError)
  await finder.currentOptions(await finder.find(secret))
})

/** Creates accounts with one key each, and returns the secrets. */
async function createKeys(count: number, partitions: number): Promise<readonly string[]> {
  const keys = Array.from({ length: count }, async () => {
    const { id: accountId, partition } = await createAccount(ledger.database, 'many', partitions)
    return createKey(ledger.database, { partition, accountId, name: 'one' })
  })
  return (await Promise.all(keys)).map(({ secret }) => secret)
}

/** Notes the prepared statements, and lets the test make some of them fail. */
function watched(database: Database, before: (name: string, values: readonly unknown[]) => void = () => {}) {
  const statements: string[] = []
  const noted = replaceIn(database, {
    async queryPrepared(name, text, values) {
      statements.push(name)
      before(name, values)
      return database.queryPrepared(name, text, values)
    },
  })
  return { database: noted, statements }
}
