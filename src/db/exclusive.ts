import pg from 'pg'

export type Exclusive = {
  /** Resolves when the lock is gone: its connection broke, or was closed by whoever gave it back. */
  readonly lost: Promise<void>
  release(): Promise<void>
}

const answerMsMax = 5_000

/**
 * Takes the lock of that name if nobody has it, on a connection of its own: whoever dies loses it at once, and no clock is
 * involved. Undefined when another process has it.
 */
export async function tryExclusive(url: string, name: string): Promise<Exclusive | undefined> {
  const client = new pg.Client({
    connectionString: url,
    application_name: `penny ${name}`,
    connectionTimeoutMillis: answerMsMax,
    query_timeout: answerMsMax,
    keepAlive: true,
  })
  const lost = Promise.withResolvers<void>()
  client.on('error', () => lost.resolve())
  client.on('end', () => lost.resolve())
  await client.connect()
  try {
    const { rows } = await client.query<{ got: boolean }>(
      `select pg_try_advisory_lock(hashtextextended('penny ' || $1, 0)) as got`,
      [name],
    )
    if (rows[0]!.got) return { lost: lost.promise, release: () => client.end() }
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
  await client.end()
  return undefined
}
