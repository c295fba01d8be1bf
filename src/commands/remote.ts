import { setTimeout as sleep } from 'node:timers/promises'
import type { AnswerOf } from '../openapi/contract.ts'
import type { keyContracts } from '../openapi/contracts/keys.ts'
import type { requestContracts } from '../openapi/contracts/requests.ts'
import { type Address, checksummed } from '../signer/address.ts'
import { CommandError, type Output } from './command.ts'
import type { Login } from './login-file.ts'
import { get } from './service-access.ts'
import { untilStopped } from './stop-signal.ts'
import { printRows } from './table.ts'

type OwnKey = AnswerOf<typeof keyContracts.getOwnKey>
type RequestList = AnswerOf<typeof requestContracts.listRequests>
type Totals = AnswerOf<typeof requestContracts.getRequestTotals>
export type RemoteRequest = RequestList['data'][number]

const dayMs = 86_400_000
const pollMs = 2_000
const pageMax = 100
// More than the largest `--last`, because a page can be short.
const pagesMax = 20
const remoteDaysMax = 31

export function readOwnKey(login: Login): Promise<OwnKey> {
  return get<OwnKey>(login, '/api/key')
}

/** Refuses what the service shows only to people, not to API keys. */
export function refuseRemote({ origin }: Login, what: string, page: string): never {
  throw new CommandError(`An API key cannot ${what}. Sign in to the dashboard: ${origin}${page}`, 2)
}

export async function printRemoteBalance(login: Login, output: Output): Promise<number> {
  const key = await readOwnKey(login)
  if (output.json) output.write(`${JSON.stringify(key, null, 2)}\n`)
  else {
    const limit = key.limit === null ? 'no limit' : `${key.remaining} of ${key.limit} left (${key.limit_window})`
    output.write(`${key.available} USDC can be spent at ${login.origin}.\n`)
    output.write(`Key "${key.name}" (${key.hint}): spent ${key.spent}, held ${key.held}, ${limit}.\n`)
  }
  return 0
}

export async function printRemoteDeposit(login: Login, output: Output): Promise<number> {
  const { deposit_address: address } = await readOwnKey(login)
  if (address === null)
    throw new CommandError(
      `${login.origin} has no deposit address for this account. A new account gets one within minutes; one that pays over x402 has none.`,
    )
  const shown = checksummed(address as Address)
  if (output.json) output.write(`${JSON.stringify({ address: shown })}\n`)
  else output.write(`Send only USDC to ${shown}\nDeposits are shown in the dashboard: ${login.origin}/funds\n`)
  return 0
}

export async function printRemoteKey(login: Login, output: Output): Promise<number> {
  const { id, hint, name, status, limit, limit_window: window, spent, held, expires_at } = await readOwnKey(login)
  printRows(output, [{ id, hint, name, status, limit, window, spent, held, expires_at }], { omit: ['held', 'window'] })
  if (!output.json) output.write(`Other keys are in the dashboard: ${login.origin}/keys\n`)
  return 0
}

/** One row per day (UTC), newest last. */
export async function printRemoteUsage(login: Login, days: number, output: Output): Promise<number> {
  if (days > remoteDaysMax) throw new CommandError(`--days must be at most ${remoteDaysMax} here. Got "${days}".`, 2)
  const today = Math.floor(Date.now() / dayMs) * dayMs
  const rows = []
  for (let start = today - (days - 1) * dayMs; start <= today; start += dayMs) {
    const [from, to] = [new Date(start), new Date(start + dayMs)].map((instant) => instant.toISOString())
    const totals = await get<Totals>(login, `/api/requests/totals?from=${from}&to=${to}`)
    if (totals.requests === 0) continue
    rows.push({
      day: from!.slice(0, 10),
      requests: totals.requests,
      input_tokens: totals.prompt_tokens,
      output_tokens: totals.completion_tokens,
      searches: totals.search_calls,
      charged: totals.charged,
    })
  }
  printRows(output, rows)
  return 0
}

export type RemoteTail = {
  readonly last: number
  readonly once: boolean
  /** Only requests of this model, or that ended like this. */
  readonly model?: string | undefined
  readonly status?: string | undefined
  readonly show: (row: RemoteRequest) => void
}

/** Shows the latest ended requests, then each request that ends, oldest first, until it is stopped. */
export async function tailRemote(login: Login, { last, once, model, status, show }: RemoteTail): Promise<number> {
  const stop = untilStopped()
  const query = new URLSearchParams({ limit: String(pageMax) })
  if (model !== undefined) query.append('model', model)
  // Open requests are read too: they are shown when they end.
  for (const wanted of status === undefined ? [] : [status, 'held']) query.append('status', wanted)
  let rows = await readNewest(login, query, (read) => read.filter(isEnded).length >= last)
  for (const row of rows.filter(isEnded).slice(0, last).reverse()) show(row)
  while (!once) {
    const seen = new Set(rows.filter(isEnded).map(({ id }) => id))
    const open = rows.filter((row) => !isEnded(row)).map(({ id }) => id)
    await sleep(pollMs, undefined, { signal: stop }).catch(() => {})
    if (stop.aborted) break
    rows = await readNewest(login, query, (read) => seen.size === 0 || read.some(({ id }) => seen.has(id)))
    // Many newer requests may have begun while these were open.
    for (const id of open)
      if (!rows.some((row) => row.id === id)) rows.push(await get<RemoteRequest>(login, `/api/requests/${id}`))
    for (const row of rows.toReversed())
      if (isEnded(row) && !seen.has(row.id) && (status ?? row.status) === row.status) show(row)
  }
  return 0
}

/** Reads the newest requests, page by page, until `isEnough`. */
async function readNewest(
  login: Login,
  query: URLSearchParams,
  isEnough: (rows: readonly RemoteRequest[]) => boolean,
): Promise<RemoteRequest[]> {
  const rows: RemoteRequest[] = []
  let cursor: string | null = ''
  for (let pages = 0; cursor !== null && pages < pagesMax; pages += 1) {
    const page: RequestList = await get(login, `/api/requests?${query}${cursor && `&cursor=${cursor}`}`)
    rows.push(...page.data)
    cursor = isEnough(rows) ? null : page.next_cursor
  }
  return rows
}

function isEnded({ status }: RemoteRequest): boolean {
  return status !== 'held'
}
