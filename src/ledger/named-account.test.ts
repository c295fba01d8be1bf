import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createAccount, renameAccount } from './accounts.ts'
import { openDemoAccount } from './demo-account.ts'
import { accountNamed } from './named-account.ts'

const ledger = ledgerSuite()

test('an account is found by its id or its name, however many there are', async () => {
  await ledger.database.query(
    `insert into accounts (partition, id, name) select 0, gen_random_uuid(), 'one of many' from generate_series(1, 1001)`,
  )
  const account = await createAccount(ledger.database, 'the last', 1)
  for (const named of [account.id, account.name]) {
    assert.equal((await accountNamed(ledger.database, named)).id, account.id)
  }
  await assert.rejects(accountNamed(ledger.database, 'nobody'), { code: 'not_found' })
  await assert.rejects(accountNamed(ledger.database, 'one of many'), { code: 'invalid_value' })
  await assert.rejects(accountNamed(ledger.database, undefined), { code: 'invalid_value' })
})

test('without --account the sandbox account is used, whatever its name', async () => {
  await createAccount(ledger.database, 'Sandbox demo', 1)
  const demo = await openDemoAccount(ledger.database)
  await renameAccount(ledger.database, demo.partition, demo.id, 'mine')
  assert.equal((await accountNamed(ledger.database, undefined)).id, demo.id)
})
