import { setTimeout as sleep } from 'node:timers/promises'
import type { AnswerOf } from '../openapi/contract.ts'
import type { keyContracts } from '../openapi/contracts/keys.ts'
import type { requestContracts } from '../openapi/contracts/requests.ts'
import { type Address, checksummed } from '../signer/address.ts'
import { CommandError, type Output } from './command.ts'
import type { Login } from './login-file.ts'
import { get } from './service-access.ts'
import { printRows } from './table.ts'

type OwnKey = AnswerOf<typeof keyContracts.getOwnKey>
type RequestList = AnswerOf<typeof requestContracts.listRequests>
type Totals = AnswerOf<typeof requestContracts.getRequestTotals>
export type RemoteRequest = RequestList['data'][number]

const dayMs = 86_400_000
const pollMs = 2_000
const pageMax = 100
const remoteDaysMax = 31

export function readOwnKey(login: Login): Promise<OwnKey> {
  return get<OwnKey>(login, '/api/key')
}

/** For what the service shows to people only. */
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

/** Day by day, in UTC, newest last. */
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
  readonly show: (row: RemoteRequest) => void
}

/** The last ones, then each that ends, oldest first, until a signal. */
export async function tailRemote(login: Login, { last, once, show }: RemoteTail): Promise<number> {
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())
  const seen = new Set<string>()
  for (let limit = last; ; limit = pageMax) {
    const { data } = await get<RequestList>(login, `/api/requests?limit=${Math.min(Math.max(limit, 1), pageMax)}`)
    const fresh = data.filter(({ id, status }) => status !== 'held' && !seen.has(id)).reverse()
    for (const row of fresh) {
      seen.add(row.id)
      if (limit > 0) show(row)
    }
    if (once) return 0
    await sleep(pollMs, undefined, { signal: stop.signal }).catch(() => {})
    if (stop.signal.aborted) return 0
  }
}
