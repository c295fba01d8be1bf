import type pg from 'pg'
import { OperatorError } from '../errors.ts'
import { connectClient } from './servers.ts'

const replyMsMax = 10_000

/**
 * Refuses a connection pooler in transaction or statement mode, such as PgBouncer's `pool_mode = transaction`. Settlement and
 * migrations rely on session locks to run in one process only; behind such a pooler they lock nothing. Detection: without a pooler,
 * two open connections never share a server process, and a connection never changes its own.
 */
export async function refuseTransactionPooler(url: string): Promise<void> {
  const open = () => connectClient(url, { connectionTimeoutMillis: replyMsMax, query_timeout: replyMsMax })
  const clients: pg.Client[] = []
  try {
    const first = await open()
    clients.push(first)
    const second = await open()
    clients.push(second)
    const before = await backendOf(first)
    // Occupies a server process until the transaction ends.
    await second.query('begin')
    const other = await backendOf(second)
    const after = await backendOf(first)
    if (other === before || after !== before)
      throw new OperatorError(
        'DATABASE_URL points to a connection pooler in transaction mode, where session locks do not work. Use the address of PostgreSQL itself, or a pool in session mode.',
      )
  } finally {
    for (const client of clients) await client.end().catch(() => {})
  }
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  return rows[0]!.pid
}
