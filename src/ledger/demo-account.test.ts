import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openPayer, partitions } from '../../test/support/ledger.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { findAccount } from './accounts.ts'
import { beginAgain, openDemoAccount } from './demo-account.ts'

const ledger = ledgerSuite()

test('two nodes that start for the first time at the same moment open one demo account', async () => {
  const { database } = ledger
  const opened = await Promise.all(Array.from({ length: 8 }, () => openDemoAccount(database)))
  assert.equal(new Set(opened.map(({ partition, id }) => `${partition}/${id}`)).size, 1)
})

test('after a reset the demo account is the new one, also after restarts, and the old one is unchanged', async () => {
  const { database } = ledger
  const first = await openDemoAccount(database)
  assert.equal((await openDemoAccount(database)).id, first.id)
  const second = await beginAgain(database, first, partitions)
  const third = await beginAgain(database, second, partitions)
  assert.equal(new Set([first.id, second.id, third.id]).size, 3)
  assert.equal((await openDemoAccount(database)).id, third.id)
  assert.equal(third.name, first.name)
  assert.match((await findAccount(database, first.partition, first.id))!.name, /^Sandbox demo \(left 20/)
})

test('an account that is not the sandbox’s own begins again as another such account', async () => {
  const { database } = ledger
  const demo = await openDemoAccount(database)
  const { partition, accountId } = await openPayer(database, 700n)
  await beginAgain(database, (await findAccount(database, partition, accountId))!, partitions)
  assert.equal((await openDemoAccount(database)).id, demo.id)
  assert.equal((await findAccount(database, partition, accountId))!.spendable, 700n)
})
