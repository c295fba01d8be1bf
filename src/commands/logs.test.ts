import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { hold, openKey, openLedger, voided } from '../../test/support/ledger.ts'
import { testDatabase } from '../../test/support/postgres.ts'
import { temporaryFolder } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { creditDeposit } from '../ledger/deposits.ts'
import { formatRequestId } from '../ledger/request-id.ts'
import { fromAtomic } from '../money/usdc.ts'
import { logsCommand } from './logs.ts'

// Commands beside a service often have its DATA_DIR and none of its other settings.
test('penny logs tail shows the requests of all partitions without LEDGER_PARTITIONS', async (t) => {
  const { database, url, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const account = { partition: 5, id: randomUUID() }
  await database.query('insert into accounts (partition, id, name) values ($1, $2, $3)', [5, account.id, 'far'])
  const deposit = { id: randomUUID(), accountId: account.id, amount: fromAtomic(1_000n), source: 'test' }
  await creditDeposit(database, { partition: 5, ...deposit })
  const payer = { partition: 5, accountId: account.id, keyId: await openKey(database, account, {}) }
  const placed = await hold(holds, payer, 100n)
  await holds.end(voided(placed))
  let written = ''
  const output = { json: true, color: false, width: undefined, write: (text: string) => void (written += text) }
  const config = readConfig({ DATABASE_URL: url, DATA_DIR: temporaryFolder(t) })
  assert.equal(await logsCommand.run({ words: ['tail'], options: { once: true }, config, output }), 0)
  assert.equal(JSON.parse(written).id, formatRequestId(placed.requestId))
})

// The filter was applied after the last N were taken: beside many successes, no refusal was ever shown.
test('penny logs tail --last 2 --status shows the last two of that status, however many others came later', async (t) => {
  const { database, url, drop } = await testDatabase()
  atEnd(t, drop)
  const holds = await openLedger(database)
  const account = { partition: 0, id: randomUUID() }
  await database.query('insert into accounts (partition, id, name) values ($1, $2, $3)', [0, account.id, 'near'])
  const deposit = { id: randomUUID(), accountId: account.id, amount: fromAtomic(1_000n), source: 'test' }
  await creditDeposit(database, { partition: 0, ...deposit })
  const payer = { partition: 0, accountId: account.id, keyId: await openKey(database, account, {}) }
  const wanted: string[] = []
  for (const status of ['cancelled', 'cancelled', 'cancelled', 'failed', 'failed', 'failed'] as const) {
    const placed = await hold(holds, payer, 10n)
    await holds.end({ ...voided(placed), status })
    if (status === 'cancelled') wanted.push(formatRequestId(placed.requestId))
  }
  await hold(holds, payer, 10n)
  let written = ''
  const output = { json: true, color: false, width: undefined, write: (text: string) => void (written += text) }
  const config = readConfig({ DATABASE_URL: url, DATA_DIR: temporaryFolder(t) })
  const options = { once: true, last: '2', status: 'cancelled' }
  assert.equal(await logsCommand.run({ words: ['tail'], options, config, output }), 0)
  const shown = written
    .trim()
    .split('\n')
    .map((text) => JSON.parse(text).id)
  assert.deepEqual(shown, wanted.slice(1))
})
