import { openDatabase } from '../../src/db/database.ts'
import { updateKey } from '../../src/identity/api-keys.ts'
import { findAccount } from '../../src/ledger/accounts.ts'
import type { Hold, Payer } from '../../src/ledger/hold-calls.ts'
import type { Holds } from '../../src/ledger/holds.ts'
import { fromAtomic } from '../../src/money/usdc.ts'
import { Random } from '../faults/random.ts'
import { charge, openLedger, place } from '../support/ledger.ts'

// One of several processes that spend the same accounts. Each of its clients records when it called the ledger and when it got the answer,
// by the machine's monotonic clock, which all processes share.

export type WorkerOrder = {
  readonly databaseUrl: string
  readonly payers: readonly Payer[]
  readonly seed: number
  /** Their numbers, which no other process has. */
  readonly clients: readonly number[]
  readonly operationsPerClient: number
  readonly quoteMax: number
  readonly limitMax: number
}

/** One operation as `check-history.go` reads it. Times are in microseconds. */
export type Recorded = {
  readonly client: number
  readonly kind: 'open' | 'place' | 'end' | 'limit' | 'read'
  readonly amount?: number
  readonly charged?: number
  readonly answer?: string
  readonly spendable?: number
  readonly held?: number
  readonly call: number
  readonly return: number
}

process.once('message', async (order: WorkerOrder) => {
  const database = openDatabase({ url: order.databaseUrl, poolMax: 6, applicationName: 'linearizability' })
  const holds = await openLedger(database)
  const random = new Random(order.seed)
  const histories: Recorded[][] = []
  for (const payer of order.payers) {
    const clients = order.clients.map((client) => spend(client, payer, random.branch()))
    histories.push((await Promise.all(clients)).flat())
  }
  await database.close()
  // A long message is cut off when the channel closes before it was written.
  process.send?.(histories, undefined, undefined, () => process.disconnect?.())

  async function spend(client: number, payer: Payer, choices: Random): Promise<Recorded[]> {
    const history: Recorded[] = []
    const open: Hold[] = []
    const record = async (
      kind: Recorded['kind'],
      run: () => Promise<Omit<Recorded, 'client' | 'kind' | 'call' | 'return'>>,
    ) => {
      const call = Math.floor(performanceUs())
      const seen = await run()
      history.push({ client, kind, ...seen, call, return: Math.ceil(performanceUs()) })
    }
    for (let count = 0; count < order.operationsPerClient; count += 1) {
      const choice = choices.next()
      if (choice < 0.15) await record('read', () => read(payer))
      else if (choice < 0.25) await record('limit', () => setLimit(payer, choices.between(0, order.limitMax)))
      else if (choice < 0.6 || open.length === 0) {
        await record('place', () => tryPlace(holds, payer, choices.between(1, order.quoteMax), open))
      } else await record('end', () => end(holds, open.shift()!, choices))
    }
    while (open.length > 0) await record('end', () => end(holds, open.shift()!, choices))
    return history
  }

  async function read({ partition, accountId }: Payer) {
    const account = (await findAccount(database, partition, accountId))!
    return { spendable: Number(account.spendable), held: Number(account.held) }
  }

  async function setLimit({ keyId }: Payer, amount: number) {
    await updateKey(database, keyId, { limit: fromAtomic(BigInt(amount)) })
    return { amount }
  }
})

async function tryPlace(holds: Holds, payer: Payer, amount: number, open: Hold[]) {
  const decision = await place(holds, payer, BigInt(amount))
  if ('hold' in decision) open.push(decision.hold)
  return { amount, answer: 'hold' in decision ? 'held' : decision.refusal.code }
}

async function end(holds: Holds, hold: Hold, choices: Random) {
  const amount = Number(hold.quote)
  const charged = choices.between(0, amount)
  await holds.end(charge(hold, BigInt(charged)))
  return { amount, charged }
}

function performanceUs(): number {
  return Number(process.hrtime.bigint()) / 1_000
}
