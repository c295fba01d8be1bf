import { plainArray, textArray } from '../db/array-literal.ts'
import type { Database } from '../db/database.ts'

export type PricedModel = {
  readonly id: string
  readonly inputPerMillion: bigint
  readonly outputPerMillion: bigint
}

/** Stores a version of the price list. A version never changes, so storing it again does nothing. */
export async function recordPrices(
  database: Database,
  version: string,
  models: readonly PricedModel[],
  searchPerCall: bigint,
): Promise<void> {
  // Read first: on a cluster every worker has a copy, and a write needs all of them. A node starts although one is down.
  const known = await database.query('select from prices where version = $1', [version])
  if (known.length === models.length) return
  await database.query(
    `insert into prices (version, model, input_per_million, output_per_million, search_per_call)
     select $1, u.model, u.input, u.output, $5
       from unnest($2::text[], $3::bigint[], $4::bigint[]) as u (model, input, output)
     on conflict do nothing`,
    [
      version,
      textArray(models.map((model) => model.id)),
      plainArray(models.map((model) => model.inputPerMillion)),
      plainArray(models.map((model) => model.outputPerMillion)),
      searchPerCall,
    ],
  )
}
