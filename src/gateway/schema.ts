import pg from 'pg'

const schema = 'gateway'
const connectMsMax = 5_000

/** The address of the same database for one who sees only the gateway's schema, which is made if it is not there. */
export async function schemaUrl(databaseUrl: string): Promise<string> {
  const client = new pg.Client({ connectionString: databaseUrl, connectionTimeoutMillis: connectMsMax })
  client.on('error', () => {})
  await client.connect()
  try {
    // Two gateways may start at once; PostgreSQL's `if not exists` alone does not stand that.
    await client.query(
      `do $$ begin create schema ${schema}; exception when duplicate_schema or unique_violation then null; end $$`,
    )
  } finally {
    await client.end()
  }
  const url = new URL(databaseUrl)
  const options = url.searchParams.get('options')
  url.searchParams.set('options', `${options === null ? '' : `${options} `}-c search_path=${schema}`)
  return url.href
}
