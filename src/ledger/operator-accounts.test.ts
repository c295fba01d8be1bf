import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { listOperatorAccounts } from './operator-accounts.ts'

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

// The plans of a worker are not seen from the coordinator.
const isOnCluster = process.env.TEST_CITUS_WORKERS !== undefined
test('an address is found among many accounts by index only', async () => {
  const { database } = ledger
  await database.query(
    `insert into accounts (partition, id, name, address, owner_address)
     select 0, gen_random_uuid(), 'a', '0x' || lpad(to_hex(n), 40, '0'), '0x' || lpad(to_hex(n + 1000000), 40, '1')
       from generate_series(1, 20000) n`,
  )
  await database.query(
    `insert into wallets (address, person_id) select '0x' || lpad(substr(address, 35), 40, 'f'), id from accounts`,
  )
  await database.query(
    `insert into memberships (partition, account_id, person_id, role, owner_since) select partition, id, id, 'owner', now() from accounts`,
  )
  await database.query('analyze accounts, wallets, memberships')
  const [{ address, owner_address: owner, id } = fail()] = await database.query<Account>(
    `select id, address, owner_address from accounts where address = '0x' || lpad(to_hex(777), 40, '0')`,
  )
  const wallet = `0x${address.slice(34).padStart(40, 'f')}`
  for (const text of [address, owner, wallet, wallet.toUpperCase().replace('0X', '0x')]) {
    const { accounts } = await listOperatorAccounts(database, { text, after: undefined, limit: 10 })
    assert.deepEqual(
      accounts.map((account) => account.id),
      [id],
      text,
    )
  }
  if (isOnCluster) return
  // The statements as they are sent, explained: no table is read from one end to the other.
  const plans: string[] = []
  const explaining = {
    async query(statement: string, values: readonly unknown[]) {
      const rows = await database.query<{ 'QUERY PLAN': string }>(`explain (analyze, timing off) ${statement}`, values)
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
      return []
    },
  } as unknown as typeof database
  await listOperatorAccounts(explaining, { text: owner, after: undefined, limit: 10 })
  assert.equal(plans.length, 2)
  assert.doesNotMatch(plans.join('\n'), /Seq Scan on (accounts|wallets)|accounts_newest/)
})

type Account = { readonly id: string; readonly address: string; readonly owner_address: string }

function fail(): never {
  throw new Error('no such account')
}
