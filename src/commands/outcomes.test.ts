import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { adminFile } from '../../sandbox/client.ts'
import { atEnd } from '../../test/support/at-end.ts'
import { openPayer } from '../../test/support/ledger.ts'
import { type TestDatabase, testDatabase } from '../../test/support/postgres.ts'
import { keys, temporaryFolder, terms } from '../../test/support/signing.ts'
import { readConfig } from '../config/config.ts'
import { writeSettlementEndpoints } from '../settlement/settlement-endpoints.ts'
import { accountsCommand } from './accounts.ts'
import { balanceCommand } from './balance.ts'
import { chatCommand } from './chat.ts'
import { type Command, CommandError } from './command.ts'
import { keysCommand } from './keys.ts'
import { payoutCommand } from './payout.ts'
import { receiptCommand } from './receipt.ts'
import { requestsCommand } from './requests.ts'
import { sandboxCommand } from './sandbox.ts'

type Options = Record<string, string | boolean>

/** Exit code and what a person reads. */
async function run(command: Command, line: string, environment: Record<string, string>, options: Options = {}) {
  let text = ''
  const output = { json: false, color: false, width: undefined, write: (more: string) => void (text += more) }
  const words = line.split(' ').filter((word) => word !== '')
  try {
    const code = await command.run({ words, options, config: readConfig(environment), output })
    return [code, text.trim()]
  } catch (error) {
    if (error instanceof CommandError) return [error.exitCode, error.message]
    throw error
  }
}

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

test('penny sandbox fail says what it did and how to undo it', async (t) => {
  const dataDir = temporaryFolder(t)
  const requests: string[] = []
  const server = createServer(async (request, response) => {
    requests.push(`${request.url} ${await new Response(request as unknown as ReadableStream).text()}`)
    response.end('{}')
  }).listen(0, '127.0.0.1')
  atEnd(t, async () => void server.close().closeAllConnections())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  writeFileSync(join(dataDir, adminFile), JSON.stringify({ url, token: 'secret' }))
  const fail = (how: string) => run(sandboxCommand, `fail ${how}`, { DATA_DIR: dataDir })
  assert.deepEqual(await fail('429'), [
    0,
    'The sandbox model now answers every request with 429. Undo: penny sandbox fail off',
  ])
  assert.deepEqual(await fail('off'), [0, 'The sandbox model answers normally.'])
  assert.deepEqual(requests, [
    '/fail {"failure":"429"}',
    '/slow {"milliseconds":0}',
    '/fail {"failure":null}',
    '/slow {"milliseconds":0}',
  ])
  const names = 'Use one of 429, 500, kill, hang, slow, garbage, off.'
  assert.equal((await fail('often'))[0], 2)
  assert.deepEqual((await fail('often'))[1], `Unknown failure "often". ${names}`)
})

test('a stopped service is one line that says to start it, never a stack', async (t) => {
  const dataDir = temporaryFolder(t)
  const stopped = { DATA_DIR: dataDir, DATABASE_URL: ledger.url }
  const { address } = keys.ofRole('issuer')
  const gatewayUrl = 'http://127.0.0.1:9'
  writeSettlementEndpoints(dataDir, { rpcUrl: gatewayUrl, gatewayUrl, terms, issuer: address, relayer: address })
  const { accountId } = await openPayer(ledger.database, 1_000_000n)
  const adjustment = { amount: '1', reason: 'late', yes: true }
  for (const [command, line, options] of [
    [payoutCommand, '', {}],
    [accountsCommand, `adjust ${accountId}`, adjustment],
    [chatCommand, 'hello', { url: 'http://127.0.0.1:9/v1', key: 'penny_x' }],
    [sandboxCommand, 'fail 429', {}],
    [balanceCommand, '', {}],
    [keysCommand, 'create', { name: 'late' }],
  ] as const) {
    const [code, text] = await run(command, line, stopped, options)
    assert.equal(code, 1, `${text}`)
    assert.match(`${text}`, /^[^\n]+ Start [^\n]+\.$/)
  }
})

test('a change that was already made, or that changes nothing, says so', async () => {
  const environment = { DATABASE_URL: ledger.url }
  const { accountId } = await openPayer(ledger.database, 1_000_000n)
  const account = (verb: string) => run(accountsCommand, `${verb} ${accountId}`, environment, { reason: 'late' })
  assert.match(`${(await account('suspend'))[1]}`, /^Suspended .+\nUndo: penny accounts resume /)
  assert.match(`${(await account('suspend'))[1]}`, /was already suspended \(late\)/)
  assert.match(`${(await account('resume'))[1]}`, /^Resumed /)
  assert.match(`${(await account('resume'))[1]}`, /was not suspended\. Nothing changed\.$/)
})

test('an invalid request id is named', async () => {
  for (const [command, line] of [
    [requestsCommand, 'get req_nope'],
    [receiptCommand, 'req_nope'],
  ] as const) {
    const [code, text] = await run(command, line, {})
    assert.deepEqual([code, `${text}`.startsWith('"req_nope" is not a request id')], [2, true])
  }
})
