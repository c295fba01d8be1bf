import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { type TestContext, test } from 'node:test'
import { atEnd } from '../../test/support/at-end.ts'
import { charge, hold, openLedger, openPayer, settle } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { startRpcProxy } from '../../test/support/rpc-proxy.ts'
import { keys, temporaryFolder, terms } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { adjustAccount } from '../ledger/adjustments.ts'
import { beginCursors, copiedAtCursor, readCursor } from '../ledger/chain-cursors.ts'
import { findFreeze, freezeLedger, unfreezeLedger } from '../ledger/freeze.ts'
import { writeSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { auditCommand } from './audit.ts'

const word = (value: bigint) => `0x${value.toString(16).padStart(64, '0')}`

type Installation = TestDatabase & {
  readonly dataDir: string
  seller: bigint
  silence: 'at once' | 'half-way' | undefined
}

/** Frozen books with one account and a chain on which the seller has so much; the account's own balance is not on it. */
async function install(t: TestContext): Promise<Installation> {
  const ledger = await testDatabase()
  atEnd(t, () => ledger.drop())
  const installation: Installation = { ...ledger, dataDir: temporaryFolder(t), seller: 0n, silence: undefined }
  const node = await startRpcProxy(t, 'http://127.0.0.1:1')
  node.fault = async ({ method }) => {
    const isFirst = method === 'eth_chainId'
    if (installation.silence === (isFirst ? 'at once' : 'half-way')) return 'hang up'
    return { result: method === 'eth_call' ? word(installation.seller) : '0x1' }
  }
  const { address } = keys.ofRole('issuer')
  const line = { rpcUrl: node.url, gatewayUrl: 'http://127.0.0.1:1', terms, issuer: address, relayer: address }
  writeSettlementEndpoints(installation.dataDir, line)
  await freezeLedger(ledger.database, 'by a test')
  return installation
}

async function audit({ url, dataDir }: Installation, unfreeze: boolean, environment: Record<string, string> = {}) {
  let text = ''
  const output = { json: false, color: false, width: undefined, write: (more: string) => void (text += more) }
  const config = readConfig({ DATABASE_URL: url, DATA_DIR: dataDir, ...environment })
  const code = await auditCommand.run({ words: [], options: { unfreeze }, config, output })
  return { code, chain: /^I12\s+(holds|BROKEN|not checked)/m.exec(text)?.[1], text }
}

test('the ledger is not unfrozen without a check against the chain, even if the chain fails halfway', async (t) => {
  const installation = await install(t)
  for (const silence of ['at once', 'half-way'] as const) {
    installation.silence = silence
    assert.equal((await audit(installation, false)).chain, 'not checked')
    await assert.rejects(audit(installation, true), /The chain node 127\.0\.0\.1:\d+ does not respond.*stays frozen/)
    assert.equal(await findFreeze(installation.database), 'by a test')
  }
  installation.silence = undefined
  assert.deepEqual([(await audit(installation, true)).code, await findFreeze(installation.database)], [0, undefined])
})

test('a ledger frozen by the chain comparison is not unfrozen on a machine without a chain; others are', async (t) => {
  const installation = { ...(await install(t)), dataDir: temporaryFolder(t) }
  await installation.database.query(`update ledger_state set reason = 'I12 is broken: by a test'`)
  await assert.rejects(
    audit(installation, true),
    /chain were not compared.*Run this command on the machine that settles/,
  )
  await installation.database.query(`update ledger_state set reason = 'restored from a copy: by a test'`)
  await assert.rejects(audit(installation, true), /Run this command on the machine that settles/)
  await installation.database.query(`update ledger_state set reason = 'I1 is broken: by a test'`)
  const address = `0x${'5'.repeat(40)}`
  const chain = { CHAIN_RPC_URL: 'http://127.0.0.1:1', GATEWAY_URL: 'http://127.0.0.1:1', USDC_ADDRESS: address }
  const web = { ...chain, GATEWAY_WALLET_ADDRESS: address, ROLES: 'web' }
  await assert.rejects(audit(installation, true, web), /Run this command on the machine that settles/)
  assert.equal((await audit(installation, true)).code, 0)
  assert.equal(await findFreeze(installation.database), undefined)
})

test('an operator can stop new requests, says why, and leaves nothing to the next recovery', async (t) => {
  const installation = await install(t)
  const { database, url, dataDir } = installation
  await unfreezeLedger(database)
  let text = ''
  const output = { json: false, color: false, width: undefined, write: (more: string) => void (text += more) }
  const invocation = { words: [], config: readConfig({ DATABASE_URL: url, DATA_DIR: dataDir }), output }
  await assert.rejects(auditCommand.run({ ...invocation, options: { freeze: ' ' } }), /Give a reason/)
  assert.equal(await findFreeze(database), undefined)
  assert.equal(await auditCommand.run({ ...invocation, options: { freeze: 'a key may have leaked' } }), 0)
  assert.equal(await findFreeze(database), 'by the operator: a key may have leaked')
  assert.match(text, /New requests are refused/)
  await beginCursors(database, [copiedAtCursor], 7n)
  assert.equal((await audit(installation, true)).code, 0)
  assert.equal(await readCursor(database, copiedAtCursor), undefined)
})

test('a seller that has less than it owes back breaks I12, and does not keep the ledger frozen', async (t) => {
  const installation = await install(t)
  const { database } = installation
  const holds = await openLedger(database)
  await unfreezeLedger(database)
  const payer = await openPayer(database, 10_000n)
  await holds.end(charge(await hold(holds, payer, 1_000n), 400n))
  await settle(database, [payer], 'completed')
  const gift = { id: randomUUID(), amount: 300n, reason: 'a test', madeBy: 'a test' }
  await adjustAccount(database, { partition: payer.partition, id: payer.accountId }, gift)
  await freezeLedger(database, 'by a test')
  installation.seller = 299n
  const { code, chain, text } = await audit(installation, false)
  assert.deepEqual([code, chain], [1, 'BROKEN'])
  assert.match(text, /owed 300, on chain 299/)
  assert.equal((await audit(installation, true)).code, 1)
  assert.equal(await findFreeze(database), undefined)
  installation.seller = 300n
  assert.equal((await audit(installation, false)).code, 0)
})
