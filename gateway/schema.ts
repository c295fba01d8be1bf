import { fileURLToPath } from 'node:url'
import { connectClient, withOption } from '../src/db/servers.ts'

export const gatewaySchema = 'gateway'
export const gatewayMigrations = fileURLToPath(new URL('migrations/', import.meta.url))
const connectMsMax = 5_000

/** A URL of the same database that uses only the gateway's schema. Creates the schema if it is missing. */
export async function schemaUrl(databaseUrl: string): Promise<string> {
  const client = await connectClient(databaseUrl, { connectionTimeoutMillis: connectMsMax })
  try {
    // Two gateways may start concurrently; PostgreSQL's `if not exists` alone fails in that race.
    await client.query(
      `do $$ begin create schema ${gatewaySchema}; exception when duplicate_schema or unique_violation then null; end $$`,
    )
  } finally {
    await client.end()
  }
  return withOption(databaseUrl, `-c search_path=${gatewaySchema}`)
}
