import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ledgerSuite } from '../../test/support/suites.ts'
import { createAccount } from '../ledger/accounts.ts'
import { printAccounts } from './accounts.ts'

const ledger = ledgerSuite()

async function printed(json: boolean): Promise<string> {
  let text = ''
  const write = (piece: string) => {
    text += piece
  }
  await printAccounts(ledger.database, { json, color: false, width: undefined, write })
  return text
}

test('penny accounts lists the newest accounts and says when there are more; --json lists all of them once', async () => {
  assert.equal(await printed(true), '[]\n')
  // They all have the same creation time, so only the id orders them.
  await ledger.database.query(
    `insert into accounts (partition, id, name) select 0, gen_random_uuid(), 'one of many' from generate_series(1, 1000)`,
  )
  const { id } = await createAccount(ledger.database, 'the newest', 1)
  const lines = (await printed(false)).trimEnd().split('\n')
  assert.equal(lines.length, 1 + 1_000 + 1)
  assert.ok(lines[1]!.startsWith(id))
  assert.equal(lines.at(-1), 'These are the newest 1,000 accounts. List all: penny accounts --json')
  const all = JSON.parse(await printed(true)) as readonly { readonly id: string }[]
  assert.equal(all[0]!.id, id)
  assert.deepEqual([all.length, new Set(all.map((account) => account.id)).size], [1_001, 1_001])
  await ledger.database.query('delete from accounts where id = $1', [all.at(-1)!.id])
  assert.doesNotMatch(await printed(false), /List all/)
})
