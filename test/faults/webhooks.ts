import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Database } from '../../src/db/database.ts'
import { createEndpoint } from '../../src/webhooks/endpoints.ts'
import { childEnvironment } from '../support/child-environment.ts'
import type { Row } from './history.ts'
import type { DelivererFault } from './plan.ts'
import { retryUntilConnected } from './postgres-server.ts'
import type { Random } from './random.ts'

/** A message at the receiver, in order of arrival. */
type Received = {
  readonly path: string
  readonly id: string
  readonly body: string
  readonly type: string
  readonly sequence: number
  readonly requestId: string
}

export type Receiver = { readonly url: string; readonly received: readonly Received[]; close(): Promise<void> }

/** Records every message, and answers some of them with an error. */
export async function startReceiver(random: Random): Promise<Receiver> {
  const received: Received[] = []
  const server = createServer(async (incoming, outgoing) => {
    let body = ''
    for await (const piece of incoming.setEncoding('utf8')) body += piece
    const { type, sequence, data } = JSON.parse(body) as { type: string; sequence: number; data: { id: string } }
    received.push({
      path: incoming.url!,
      id: String(incoming.headers['webhook-id']),
      body,
      type,
      sequence,
      requestId: data.id,
    })
    if (random.chance(0.01)) return outgoing.destroy()
    return outgoing.writeHead(random.chance(0.01) ? 500 : 204).end()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** One endpoint per account, with the account's id in its path. */
export async function openEndpoints(
  database: Database,
  accountIds: readonly string[],
  { url }: Receiver,
): Promise<void> {
  for (const accountId of accountIds)
    await database.transaction((connection) =>
      createEndpoint(
        connection,
        { partition: 0, accountId },
        { url: `${url}/${accountId}`, types: ['request.ended', 'request.refused'], description: '' },
      ),
    )
}

export type DelivererDeath = { readonly name: string; readonly fromMs: number }

const program = fileURLToPath(new URL('./deliverer-process.ts', import.meta.url))
/** Only for a process that hangs: every delivery passes the failpoint. */
const deathMsMax = 120_000
const drainMsMax = 120_000
const pollMs = 50
const hurryMs = 200

/** Runs one delivering process after another, each killed as planned. */
export class Deliverers {
  readonly deaths: DelivererDeath[] = []
  readonly problems: string[] = []
  readonly #database: Database
  readonly #databaseUrl: string
  #child: ChildProcess | undefined
  #isOver = false

  constructor(database: Database, databaseUrl: string) {
    this.#database = database
    this.#databaseUrl = databaseUrl
  }

  async work(faults: readonly DelivererFault[]): Promise<void> {
    for (const fault of faults) {
      if (this.#isOver) return
      const exited = this.#start(fault.type === 'failpoint' ? fault : undefined)
      const kill = () => {
        if (fault.type === 'failpoint') this.problems.push(`no deliverer reached ${fault.name}`)
        this.#child?.kill('SIGKILL')
      }
      const timer = setTimeout(kill, fault.type === 'kill' ? fault.afterMs : deathMsMax)
      // Make failed deliveries due immediately instead of after minutes.
      const hurrying = setInterval(() => void hurry(this.#database).catch(() => {}), hurryMs)
      await exited
      clearInterval(hurrying)
      clearTimeout(timer)
      this.deaths.push({ name: delivererFaultName(fault), fromMs: Date.now() })
    }
  }

  /** Delivers everything that is left. */
  async drain(): Promise<void> {
    const exited = this.#start(undefined)
    const deadline = Date.now() + drainMsMax
    for (;;) {
      const left = await retryUntilConnected(() => hurry(this.#database))
      if (left === 0n) break
      if (Date.now() > deadline) {
        this.problems.push(`${left} events were not delivered in ${drainMsMax} ms`)
        break
      }
      await sleep(pollMs)
    }
    this.#isOver = true
    this.#child?.kill('SIGKILL')
    await exited
  }

  abandon(): void {
    this.#isOver = true
    this.#child?.kill('SIGKILL')
  }

  async #start(failpoint: { readonly name: string; readonly reach: number } | undefined): Promise<void> {
    const child = spawn(process.execPath, [program, JSON.stringify({ databaseUrl: this.#databaseUrl, failpoint })], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: childEnvironment,
    })
    this.#child = child
    let complaint = ''
    child.stderr.on('data', (text) => {
      complaint += text
    })
    const abandon = () => void child.kill('SIGKILL')
    process.once('exit', abandon)
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
    process.off('exit', abandon)
    if (signal !== 'SIGKILL') this.problems.push(`a deliverer ended by itself: ${signal ?? code}, ${complaint}`)
  }
}

function delivererFaultName(fault: DelivererFault): string {
  return fault.type === 'failpoint' ? `deliverer: kill at ${fault.name}` : 'deliverer: kill'
}

/** Makes waiting deliveries due now. Returns how many events are not delivered yet. */
async function hurry(database: Database): Promise<bigint> {
  await database.query(`update webhook_deliveries set due_at = now() where state = 'waiting' and due_at > now()`)
  await database.query('update webhook_endpoints set due_at = now() where due_at > now()')
  const [row] = await database.query<{ left: bigint }>(
    `select (select coalesce(sum(a.events - e.sent_to), 0) from webhook_endpoints e join accounts a on a.id = e.account_id)::bigint
          + (select count(*) from webhook_deliveries where state = 'waiting') as left`,
  )
  return row!.left
}

/** Compares the received messages with the ledger. Returns one sentence per difference. */
export function findLostEvents(rows: readonly Row[], received: readonly Received[]): readonly string[] {
  const byRequest = Map.groupBy(received, ({ requestId }) => requestId)
  const byId = Map.groupBy(received, ({ id }) => id)
  const known = new Set(rows.map((row) => `req_${row.id.replaceAll('-', '')}`))
  return [
    ...rows.flatMap((row) => {
      const id = `req_${row.id.replaceAll('-', '')}`
      const type = row.status === 'refused' ? 'request.refused' : 'request.ended'
      const own = byRequest.get(id) ?? []
      if (own.length === 0) return [`no event of ${id}, which is ${row.status}`]
      if (own.some((one) => one.type !== type)) return [`${id} is ${row.status}, and its event ${own[0]!.type}`]
      return new Set(own.map((one) => one.id)).size === 1 ? [] : [`${id} has several events`]
    }),
    ...[...byRequest.keys()].filter((id) => !known.has(id)).map((id) => `the ledger has no ${id}, of which was told`),
    ...[...byId].filter(([, own]) => new Set(own.map(({ body }) => body)).size > 1).map(([id]) => `${id} changed`),
    ...[...Map.groupBy(received, ({ path }) => path)].flatMap(([path, own]) => disorderOf(path, own)),
  ]
}

/** First attempts arrive in the order of the account's events. */
function disorderOf(path: string, received: readonly Received[]): readonly string[] {
  const firsts = [...new Set(received.map(({ sequence }) => sequence))]
  const index = firsts.findIndex((sequence, place) => place > 0 && sequence < firsts[place - 1]!)
  return index === -1 ? [] : [`${path} first got ${firsts[index]} after ${firsts[index - 1]}`]
}
