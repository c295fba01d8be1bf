import type { Database } from '../../src/db/database.ts'
import { findViolations as audit } from '../../src/ledger/audit.ts'
import { type Generated, inputTokens } from './model-upstream.ts'

/** One request as its client saw it. Times are by this machine's clock, which is also the database's. */
export type Seen = {
  /** Its `max_tokens`, unique among all requests. */
  readonly name: number
  readonly stream: boolean
  /** The client closes the connection after this time, if it is still open. */
  readonly hangUpAfterMs: number | undefined
  /** The node that it was sent to. */
  readonly node: string
  readonly proxied: boolean
  readonly sentMs: number
  /** When the client's connection closed. */
  closedMs: number | undefined
  status: number | undefined
  requestId: string | undefined
  /** Received output. */
  tokens: number
  /** The answer was received completely. */
  whole: boolean
  /** The cost in the response. */
  cost: bigint | undefined
  /** The error code in the response. */
  error: string | undefined
  /** The client closed the connection itself. */
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
  /** The most tokens that a stream generates between two checkpoints: after a crash, the charge may exceed the received output by this. */
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

/** The auditor's findings. */
export async function findViolations(database: Database): Promise<readonly string[]> {
  const violations = await audit(database)
  return violations.map(({ invariant, subject, detail }) => `${invariant} is broken at ${subject}: ${detail}`)
}

/** The open holds of a node, or of all nodes. */
export async function findOpenHolds(database: Database, node?: string): Promise<readonly string[]> {
  const rows = await database.query<{ id: string }>(
    'select id from holds where node::text = coalesce($1, node::text)',
    [node ?? null],
  )
  return rows.map(({ id }) => id)
}

/**
 * Compares what clients received and what the model generated with the ledger. Returns one sentence per difference. A completed answer
 * is in the ledger once, at the reported price; whatever is charged was requested and delivered.
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

/** The ledger has no row: nothing may have been generated or delivered. */
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
    // A node that was paused past its lease finishes answers that another node has already ended.
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

/** Checks that the charge is for a permitted number of tokens, at their price. A void is free. */
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

/** Prices of the default model: one unit per input token, five per output token. */
function priceOf(prompt: number, completion: number): bigint {
  return BigInt(prompt + 5 * completion)
}

function show(value: unknown): string {
  return JSON.stringify(value, (_, member) => (typeof member === 'bigint' ? Number(member) : member))
}
