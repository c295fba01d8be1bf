import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openPayer } from '../../test/support/ledger.ts'
import { entryOf } from '../../test/support/people.ts'
import { ledgerSuite } from '../../test/support/suites.ts'
import { sessionCookie, siteOf } from '../http/origin.ts'
import { createKey } from '../identity/api-keys.ts'
import { KeyFinder } from '../identity/key-finder.ts'
import { openSession } from '../identity/sessions.ts'
import type { Payer } from '../ledger/hold-calls.ts'
import type { Contract } from '../openapi/contract.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { Gate } from './gate.ts'

const ledger = ledgerSuite()
const site = siteOf('http://localhost:8402')

/** Its clock stands still: buckets do not refill, however slow the machine is. */
function openGate(): Gate {
  const { database } = ledger
  const keys = new KeyFinder({ database, now: () => 0, cacheMs: 1_000 })
  return new Gate({ database, keys, site, isSandbox: false, isOperator: async () => false, now: () => 0 })
}

const visitor = (headers: Readonly<Record<string, string>>) => ({
  header: (name: string) => headers[name],
  address: '192.0.2.1',
  network: '192.0.2.1',
  isLocal: false,
})

async function keyOf({ partition, accountId }: Payer): Promise<Readonly<Record<string, string>>> {
  const { secret } = await createKey(ledger.database, { partition, accountId, name: 'test' })
  return { authorization: `Bearer ${secret}` }
}

async function sessionOf(payer: Payer): Promise<Readonly<Record<string, string>>> {
  const { token } = await openSession(ledger.database, await entryOf(ledger.database, payer), 'wallet', undefined)
  return { cookie: sessionCookie(site, token, 60) }
}

/** The number of requests that are admitted, out of `count`. */
async function admitted(
  gate: Gate,
  contract: Contract,
  headers: Readonly<Record<string, string>>,
  times: number,
): Promise<number> {
  let count = 0
  for (let time = 0; time < times; time += 1) {
    try {
      await gate.admit(contract, visitor(headers))
      count += 1
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'rate_limited')
    }
  }
  return count
}

test('an API key may list and sum up a hundred times at once, its account two hundred times, and others are not counted', async () => {
  const gate = openGate()
  const payer = await openPayer(ledger.database, 0n)
  const { listRequests, getRequestTotals } = requestContracts
  const [first, second, third] = [await keyOf(payer), await keyOf(payer), await keyOf(payer)]
  assert.equal(await admitted(gate, listRequests, first, 60), 60)
  assert.equal(await admitted(gate, getRequestTotals, first, 60), 40)
  assert.equal(await admitted(gate, listRequests, second, 120), 100)
  assert.equal(await admitted(gate, listRequests, third, 10), 0)
  assert.equal(await admitted(gate, listRequests, await sessionOf(payer), 10), 0)
  const other = await openPayer(ledger.database, 0n)
  assert.equal(await admitted(gate, listRequests, await keyOf(other), 10), 10)
})

test('an API key can look up the cost of single requests without a rate limit', async () => {
  const gate = openGate()
  const key = await keyOf(await openPayer(ledger.database, 0n))
  assert.equal(await admitted(gate, requestContracts.getRequest, key, 500), 500)
})

test('all sessions of an account share one rate', async () => {
  const gate = openGate()
  const payer = await openPayer(ledger.database, 0n)
  const [first, second] = [await sessionOf(payer), await sessionOf(payer)]
  assert.equal(await admitted(gate, fundsContracts.getBalance, first, 200), 200)
  assert.equal(await admitted(gate, fundsContracts.getBalance, second, 150), 100)
  const other = await openPayer(ledger.database, 0n)
  assert.equal(await admitted(gate, fundsContracts.getBalance, await sessionOf(other), 10), 10)
})

test('sessions of an account make a hundred changes at once and five a second; quotes of the playground are not changes', async () => {
  const gate = openGate()
  const payer = await openPayer(ledger.database, 0n)
  const session = { ...(await sessionOf(payer)), origin: 'http://localhost:8402', host: 'localhost:8402' }
  assert.equal(await admitted(gate, keyContracts.updateKey, session, 120), 100)
  assert.equal(await admitted(gate, chatContracts.createPlaygroundQuote, session, 20), 20)
})

test('a session above its rate is refused without a look-up', async () => {
  const { database } = ledger
  const gate = openGate()
  const payer = await openPayer(database, 0n)
  const session = await sessionOf(payer)
  assert.equal(await admitted(gate, fundsContracts.getBalance, session, 301), 300)
  // The lookup finds that it has ended, and says so.
  await database.query('delete from sessions where account_id = $1', [payer.accountId])
  assert.equal(await admitted(gate, fundsContracts.getBalance, session, 50), 0)
  const other = await sessionOf(await openPayer(database, 0n))
  assert.equal(await admitted(gate, fundsContracts.getBalance, other, 1), 1)
})
