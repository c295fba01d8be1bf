import assert from 'node:assert/strict'
import { test } from 'node:test'
import { charge, openLedger, openPayer, place } from '../../test/support/ledger.ts'
import { terms } from '../../test/support/signing.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { readConfig } from '../config/config.ts'
import type { Hold } from '../ledger/hold-calls.ts'
import { createRequestId, formatRequestId } from '../ledger/request-id.ts'
import { publishTerms } from '../settlement/published-terms.ts'
import type { SettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import type { Address } from '../signer/address.ts'
import { openChainServices } from './chain-services.ts'

const ledger = ledgerSuite()
const address = `0x${'ab'.repeat(20)}` as const

test('a machine that does not settle writes receipts as soon as settlement has run elsewhere', async () => {
  await using stack = new AsyncDisposableStack()
  const { database } = ledger
  const holds = await openLedger(database)
  await database.query('delete from settlement_terms')
  const payer = await openPayer(database, 10_000n)
  await database.query('update accounts set address = $2 where id = $1', [payer.accountId, address])
  const id = createRequestId(payer.partition, Date.now())
  const { hold } = (await place(holds, payer, 100n, id)) as { hold: Hold }
  await holds.end(charge(hold, 90n))
  const config = readConfig({ ROLES: 'web' })
  const services = openChainServices({ config, database, money: undefined, stack })
  assert.equal(await services.findReceipt!(formatRequestId(id)), undefined)
  assert.equal(await services.exportReceipts!(payer), undefined)

  const issuer = `0x${'1'.repeat(40)}` as Address
  await publishTerms(database, { terms, issuer })
  assert.partialDeepStrictEqual(await services.findReceipt!(formatRequestId(id)), {
    domain: { chain_id: String(terms.chainId), gateway_wallet: terms.gatewayWallet },
    entry: { payer: address, request: formatRequestId(id), amount_atomic: '90' },
  })
  assert.equal(await services.findReceipt!('req_0'), undefined)
  const lines = await Array.fromAsync((await services.exportReceipts!(payer))!)
  assert.partialDeepStrictEqual(JSON.parse(lines.join('').split('\n')[0]!), { payer: address, issuer })
  assert.equal((await services.solvency!()).issuer, issuer)
})

test('the controls of the sandbox model are offered only with the sandbox model', async () => {
  await using stack = new AsyncDisposableStack()
  const money = {
    terms,
    issuer: address,
    relayer: address,
    rpcUrl: 'http://127.0.0.1:1',
  } as unknown as SettlementEndpoints
  const controlsWith = (environment: Record<string, string>) => {
    const config = readConfig({ DATA_DIR: '/nowhere', ...environment })
    const { sandbox } = openChainServices({ config, database: ledger.database, money, stack })
    return [sandbox?.mine, sandbox?.failNext, sandbox?.slowNext].map((control) => control !== undefined)
  }
  assert.deepEqual(controlsWith({}), [true, true, true])
  assert.deepEqual(controlsWith({ UPSTREAM_BASE_URL: 'http://127.0.0.1:1/v1' }), [true, false, false])
})
