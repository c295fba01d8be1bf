import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Connection } from './database.ts'
import { connectClient } from './servers.ts'

export type Exclusive = {
  /** Resolves when the lock is or may be lost: its connection broke, does not answer, or `release` closed it. */
  readonly lost: Promise<void>
  release(): Promise<void>
}

export type ExclusiveOptions = {
  /** Interval of the heartbeat on the connection. */
  readonly beatMs?: number
  readonly answerMsMax?: number
  /** Called for each `notify` of another session to the lock's name (`wakeHolder`). */
  readonly onWoken?: () => void
}

/**
 * Takes the lock of that name on a dedicated connection, or returns undefined when another process holds it. When the holder dies,
 * the connection closes and the lock is free immediately: no clock is involved.
 *
 * A machine or a network that vanishes closes no connection. So both sides check: this process sends heartbeats and treats silence
 * as loss of the lock; the database probes the connection and releases the lock when this process is silent. Both happen within
 * half a minute.
 *
 * The holder is also the one that there is work for, and its connection is open anyway: it listens on it. A notification that is lost with
 * the connection costs no work, because the next holder begins by looking, and every holder looks now and then.
 */
export async function tryExclusive(
  url: string,
  name: string,
  { beatMs = 5_000, answerMsMax = 5_000, onWoken }: ExclusiveOptions = {},
): Promise<Exclusive | undefined> {
  const client = await connectClient(url, {
    application_name: `penny ${name}`,
    connectionTimeoutMillis: answerMsMax,
    query_timeout: answerMsMax,
    keepAlive: true,
  })
  const lost = Promise.withResolvers<void>()
  client.on('error', () => lost.resolve())
  client.on('end', () => lost.resolve())
  try {
    await client.query(watchClient)
    const { rows } = await client.query<{ got: boolean }>(
      'select pg_try_advisory_lock(hashtextextended($1, 0)) as got',
      [channelOf(name)],
    )
    if (rows[0]!.got) {
      if (onWoken !== undefined) {
        client.on('notification', onWoken)
        await client.query(`listen ${client.escapeIdentifier(channelOf(name))}`)
      }
      void beat(client, beatMs, lost)
      return { lost: lost.promise, release: () => client.end() }
    }
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
  await client.end()
  return undefined
}

function channelOf(name: string): string {
  return `penny ${name}`
}

/**
 * Tells the holder of a lock that there is work, when the transaction commits; functions of the database do the same by `pg_notify`.
 * PostgreSQL commits transactions with a notification one after another: send it only where a job waits, never for every request.
 * On Citus no listener receives it from a worker: the holder finds the work at its next poll.
 */
export async function wakeHolder(connection: Connection, name: string): Promise<void> {
  await connection.query("select pg_notify($1, '')", [channelOf(name)])
}

const watchClient = `set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3`

async function beat(client: pg.Client, beatMs: number, lost: PromiseWithResolvers<void>): Promise<void> {
  let isLost = false
  void lost.promise.then(() => {
    isLost = true
  })
  for (;;) {
    await sleep(beatMs, undefined, { ref: false })
    if (isLost) return
    await client.query('select').catch(() => {
      lost.resolve()
      // Not `end`, which waits for the other side: it is silent and would not answer.
      client.connection.stream.destroy()
    })
  }
}
