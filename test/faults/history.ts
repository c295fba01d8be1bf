import type { Database } from '../../src/db/database.ts'
import { findViolations as audit } from '../../src/ledger/audit.ts'
import { type Generated, inputTokens } from './model-upstream.ts'

/** One request as its client saw it. Times are of this machine's clock, which is the database's too. */
export type Seen = {
  /** Its `max_tokens`, which no other request shares. */
  readonly name: number
  readonly stream: boolean
  /** The node that it was sent to. */
  readonly node: string
  readonly proxied: boolean
  readonly sentMs: number
  /** When the client knew that nothing more would come. */
  closedMs: number | undefined
  status: number | undefined
  requestId: string | undefined
  /** Output that arrived. */
  tokens: number
  /** The answer came to its proper end. */
  whole: boolean
  /** What it was told to cost. */
  cost: bigint | undefined
  /** The code of the error that it was told. */
  error: string | undefined
  /** The client hung up of its own will. */
  left: boolean
}

/** The ledger's row of such a request. */
export type Row = {
  readonly id: string
  readonly name: number | null
  readonly node: string
  readonly status: 'held' | 'succeeded' | 'failed' | 'cancelled' | 'refused'
  readonly voided: boolean
  readonly charged: bigint
  readonly prompt: number | null
  readonly completion: number | null
  readonly error: string | null
  readonly createdMs: number
  readonly endedMs: number | null
}

export type History = {
  readonly seen: readonly Seen[]
  readonly generated: ReadonlyMap<number, readonly Generated[]>
  readonly rows: readonly Row[]
  /** What a stream may generate between two checkpoints: a crash may charge so much more than the client received. */
  readonly checkpointTokensMax: number
}

/** The rows of the clients' requests. */
export async function readRows(database: Database, accountIds: readonly string[]): Promise<readonly Row[]> {
  return database.query<Row>(
    `select id, max_tokens as name, node, status, voided, charged, prompt_tokens as prompt,
            completion_tokens as completion, error_code as error,
            (extract(epoch from created_at) * 1000)::float8 as "createdMs",
            (extract(epoch from ended_at) * 1000)::float8 as "endedMs"
       from request_log where account_id = any ($1)`,
    [accountIds],
  )
}

/** What the auditor has to say, at any time. */
export async function findViolations(database: Database): Promise<readonly string[]> {
  const violations = await audit(database)
  return violations.map(({ invariant, subject, detail }) => `${invariant} is broken at ${subject}: ${detail}`)
}

/** The requests that a node still holds. */
export async function findOpenHolds(database: Database, node: string): Promise<readonly string[]> {
  const rows = await database.query<{ id: string }>('select id from holds where node::text = $1', [node])
  return rows.map(({ id }) => id)
}

/**
 * Compares what clients saw and what the model generated with what the ledger says; every difference is a sentence. An answer
 * that was acknowledged is in the ledger once, at the price that was told; what is charged was asked for and delivered.
 */
export function findContradictions(history: History): readonly string[] {
  const asked = new Map(history.seen.map((seen) => [seen.name, seen]))
  const rows = Map.groupBy(
    history.rows.filter((row) => row.status !== 'refused'),
    (row) => row.name,
  )
  const strangers = [...rows.keys()].filter((name) => name === null || !asked.has(name))
  return [
    ...strangers.map((name) => `the ledger has a request ${name} that no client sent`),
    ...history.rows.flatMap((row) => (row.status === 'refused' ? chargedRefusal(row) : [])),
    ...history.seen.flatMap((seen) =>
      contradictionsOf(seen, rows.get(seen.name) ?? [], history).map(
        (problem) =>
          `${problem}: ${show({ seen, rows: rows.get(seen.name), generated: history.generated.get(seen.name) })}`,
      ),
    ),
  ]
}

function chargedRefusal(row: Row): string[] {
  return row.charged === 0n ? [] : [`refused request ${row.id} is charged ${row.charged}`]
}

function contradictionsOf(seen: Seen, rows: readonly Row[], history: History): string[] {
  const generated = history.generated.get(seen.name) ?? []
  const [row] = rows
  if (rows.length > 1) return ['the ledger has it twice']
  if (generated.length > 1) return ['the upstream was asked twice']
  if (row === undefined) return unheld(seen, generated)
  return [
    ...(seen.whole ? acknowledged(seen, row) : []),
    ...(seen.status !== undefined && seen.status >= 400 && row.charged > 0n
      ? ['charged, and told that it failed']
      : []),
    ...ended(seen, row, generated[0], history.checkpointTokensMax),
  ]
}

/** Nothing in the ledger: then nothing may have come of it. */
function unheld(seen: Seen, generated: readonly Generated[]): string[] {
  return [
    ...(seen.whole ? ['answered, and not in the ledger'] : []),
    ...(generated.length > 0 ? ['the upstream was asked without a hold'] : []),
  ]
}

function acknowledged(seen: Seen, row: Row): string[] {
  const id = `req_${row.id.replaceAll('-', '')}`
  return [
    ...(seen.requestId === id ? [] : [`told to be ${seen.requestId}`]),
    ...(seen.cost === row.charged ? [] : [`told to cost ${seen.cost}, charged ${row.charged}`]),
    // A node that slept past its lease delivers to the end what another has ended meanwhile.
    ...(row.status === 'succeeded' || row.error === 'interrupted' ? [] : [`whole, and ${row.status} in the ledger`]),
  ]
}

function ended(seen: Seen, row: Row, generated: Generated | undefined, checkpointTokensMax: number): string[] {
  const tokens = generated?.tokens ?? 0
  switch (row.status) {
    case 'held':
      return ['still held']
    case 'succeeded':
      return succeeded(seen, row, generated)
    case 'cancelled':
      return charged(row, seen.tokens, tokens)
    case 'failed':
      if (!seen.stream && !row.voided) return ['an answer that was not delivered is charged']
      if (row.error !== 'interrupted') return charged(row, seen.tokens, tokens)
      return charged(row, 0, Math.min(tokens, seen.tokens + checkpointTokensMax))
    default:
      return []
  }
}

function succeeded(seen: Seen, row: Row, generated: Generated | undefined): string[] {
  if (generated?.finishedMs === undefined) return ['succeeded, and the upstream has not finished']
  const price = priceOf(inputTokens, generated.tokens)
  return [
    ...(row.charged === price ? [] : [`charged ${row.charged} for what costs ${price}`]),
    ...(seen.error !== undefined && seen.tokens < generated.tokens ? ['charged whole, and cut short by an error'] : []),
  ]
}

// "Say penny." is three tokens; the framing of one message and of the reply three each.
const promptTokensMax = 9

/** Charged for as many tokens as may be, and at their price. A void is free. */
function charged(row: Row, tokensMin: number, tokensMax: number): string[] {
  if (row.voided) return tokensMin > 0 ? [`void, and ${tokensMin} tokens were delivered`] : []
  const { prompt, completion } = row
  if (prompt === null || completion === null) return ['charged without usage']
  return [
    ...(prompt <= promptTokensMax ? [] : [`charged for an input of ${prompt} tokens`]),
    ...(completion >= tokensMin && completion <= tokensMax
      ? []
      : [`charged for ${completion} tokens, where ${tokensMin} to ${tokensMax} are right`]),
    ...(row.charged === priceOf(prompt, completion) ? [] : [`charged ${row.charged} at a wrong price`]),
  ]
}

/** Of the default model: one unit for a token of input, five for one of output. */
function priceOf(prompt: number, completion: number): bigint {
  return BigInt(prompt + 5 * completion)
}

function show(value: unknown): string {
  return JSON.stringify(value, (_, member) => (typeof member === 'bigint' ? Number(member) : member))
}
