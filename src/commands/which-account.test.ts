import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createAccount, renameAccount } from '../ledger/accounts.ts'
import { openDemoAccount } from '../ledger/demo-account.ts'
import { CommandError } from './command.ts'
import { whichAccount } from './which-account.ts'

const ledger = ledgerSuite()

test('an account is found by its id or its name, however many there are', async () => {
  await ledger.database.query(
    `insert into accounts (partition, id, name) select 0, gen_random_uuid(), 'one of many' from generate_series(1, 1001)`,
  )
  const account = await createAccount(ledger.database, 'the last', 1)
  for (const named of [account.id, account.name]) {
    assert.equal((await whichAccount(ledger.database, named)).id, account.id)
  }
  const refused = (code: number) => (error: unknown) => error instanceof CommandError && error.exitCode === code
  await assert.rejects(whichAccount(ledger.database, 'nobody'), refused(1))
  await assert.rejects(whichAccount(ledger.database, 'one of many'), refused(2))
  await assert.rejects(whichAccount(ledger.database, undefined), refused(2))
})

test('without --account the sandbox account is used, whatever its name', async () => {
  await createAccount(ledger.database, 'Sandbox demo', 1)
  const demo = await openDemoAccount(ledger.database)
  await renameAccount(ledger.database, demo.partition, demo.id, 'mine')
  assert.equal((await whichAccount(ledger.database, undefined)).id, demo.id)
})
