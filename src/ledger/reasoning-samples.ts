import type { Database } from '../db/database.ts'

/** What a sample was learned from. */
export type ReasoningSource = {
  readonly provider: string
  readonly model: string
  readonly effort: string
  /**
   * `sealed`: tokens per encrypted byte. Otherwise tokens of an answer whose provider was silent for this many seconds, or with
   * `reasoned-`, of one whose provider seals and began to answer after this many.
   */
  readonly basis: string
}

/** The newest samples, oldest first. */
export type ReasoningSample = ReasoningSource & { readonly samples: readonly number[] }

export async function readReasoningSamples(database: Database): Promise<readonly ReasoningSample[]> {
  return database.query('select provider, model, effort, basis, samples from reasoning_samples')
}

/** Returns the source's newest samples, at most `samplesMax`. */
export async function addReasoningSample(
  database: Database,
  { provider, model, effort, basis }: ReasoningSource,
  value: number,
  samplesMax: number,
): Promise<readonly number[]> {
  const [row] = await database.query<{ samples: number[] }>(
    `insert into reasoning_samples as r (provider, model, effort, basis, samples) values ($1, $2, $3, $4, array[$5::float8])
     on conflict (provider, model, effort, basis) do update
       set samples = (r.samples || excluded.samples)[greatest(1, cardinality(r.samples) + 2 - $6::int):]
     returning samples`,
    [provider, model, effort, basis, value, samplesMax],
  )
  return row!.samples
}
