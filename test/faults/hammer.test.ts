import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { findAccount } from '../../src/ledger/accounts.ts'
import type { Payer } from '../../src/ledger/hold-calls.ts'
import { format, fromAtomic } from '../../src/money/usdc.ts'
import { assertBooksBalance } from '../support/audit.ts'
import { exampleCount } from '../support/examples.ts'
import { openPayer } from '../support/ledger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { recordProof } from '../support/proof.ts'

// HAMMER_ATTEMPTS=100000 for the long form.
const attemptsTotal = exampleCount('HAMMER_ATTEMPTS', { short: 2_000, full: 4_000, all: 10_000 })

export type HammerOrder = {
  readonly databaseUrl: string
  readonly payer: Payer
  readonly quote: string
  readonly cap: string
  readonly attempts: number
  readonly atOnce: number
}
export type HammerResult = { won: number; refused: number; charged: number; extended: number }

let ledger: TestDatabase
before(async () => {
  ledger = await testDatabase()
})
after(() => ledger.drop())

const isLong = process.env.HAMMER_ATTEMPTS !== undefined
const total = { attempts: 0, won: 0, extended: 0, overrun: 0 }

const quote = 1_000n
const guards = ['balance', 'key limit', 'cap'] as const
const crowds = [
  { processes: 1, atOnce: 1 },
  { processes: 1, atOnce: 1_000 },
  { processes: 2, atOnce: 100 },
  { processes: 4, atOnce: 10 },
  { processes: 4, atOnce: 250 },
] as const

for (const guard of guards) {
  for (const { processes, atOnce } of crowds) {
    test(`${guard}: ${processes} processes with ${atOnce} at once never pass it`, async () => {
      const attempts = Math.ceil(attemptsTotal / (guards.length * crowds.length * processes))
      const room = 50n
      const enough = 1_000_000_000n
      const payer = await openPayer(
        ledger.database,
        guard === 'balance' ? room * quote + 7n : enough,
        guard === 'key limit' ? { limit: fromAtomic(room * quote + 7n) } : {},
      )
      const cap = guard === 'cap' ? format(room * quote + 7n) : '1000'
      const order = { databaseUrl: ledger.url, payer, quote: quote.toString(), cap, attempts, atOnce }
      const results = await Promise.all(Array.from({ length: processes }, () => hammer(order)))

      const won = results.reduce((sum, result) => sum + result.won, 0)
      const charged = results.reduce((sum, result) => sum + result.charged, 0)
      const extended = results.reduce((sum, result) => sum + result.extended, 0)
      const account = await findAccount(ledger.database, payer.partition, payer.accountId)
      assert.equal(account?.held, BigInt(won - charged) * quote)
      assert.equal(account.gateway + account.credit - account.spendable, BigInt(extended) * quote)
      // A charge frees in-flight money, but neither balance nor key limit.
      const used = (guard === 'cap' ? won - charged : won) + extended
      total.attempts += attempts * processes
      total.won += won
      total.extended += extended
      total.overrun += Math.max(0, used - Number(room))
      if (isLong) {
        console.log(`${total.attempts} of ${attemptsTotal} attempts, ${total.won} won, overrun ${total.overrun}`)
        recordProof('hammer', total)
      }
      assert.ok(used <= Number(room), `${used} of ${room}`)
      if (guard !== 'cap') assert.equal(used, Number(room))
      await assertBooksBalance(ledger.database)
    })
  }
}

async function hammer(order: HammerOrder): Promise<HammerResult> {
  const worker = fork(new URL('./hammer-worker.ts', import.meta.url), { execArgv: [] })
  // Listen before the worker runs: on a busy machine its exit can arrive before its message.
  const exited = once(worker, 'exit')
  const answered = once(worker, 'message') as Promise<[HammerResult]>
  const silent = once(worker, 'disconnect').then(() => assert.fail('a worker ended without a result'))
  silent.catch(() => {})
  worker.send(order)
  const [result] = await Promise.race([answered, silent])
  await exited
  return result
}
