import { setTimeout as sleep } from 'node:timers/promises'
import { endedStatuses } from '../ledger/states.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { accountOption, accountUsage, type Client, findClient } from './client.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { untilStopped } from './stop-signal.ts'
import { truncate, withDecimals } from './table.ts'

type Request = AnswerOf<typeof requestContracts.getRequest>

const pollMs = 1_000
const pageMax = 100
// More than the largest `--last`, because a page can be short.
const pagesMax = 20
const lastDefault = 10
const lastMax = 1_000

export const logsCommand: Command = {
  usage: [
    ['penny requests list', `Show the latest ${lastDefault} requests. With --json, one object per line`],
    ['penny requests tail', 'The same, then new ones until Ctrl-C; also: penny logs tail'],
    ['--last N', 'Start with this many requests'],
    ['--model NAME', 'Only this model'],
    ['--status STATUS', `Only ${endedStatuses.join(', ')}`],
    ['--once', 'Do not wait for new requests: tail becomes list'],
    ...accountUsage,
  ],
  options: {
    ...accountOption,
    last: { type: 'string' },
    model: { type: 'string' },
    status: { type: 'string' },
    once: { type: 'boolean' },
  },
  wordsMax: 1,
  async run(invocation) {
    const { options, output } = invocation
    const [verb = 'tail'] = invocation.words
    if (verb !== 'tail') throw new CommandError(`penny logs has no verb "${verb}". It has: tail.`, 2)
    const { status, model } = options
    if (status !== undefined && !endedStatuses.some((known) => known === status))
      throw new CommandError(`--status must be one of ${endedStatuses.join(', ')}. Got "${status}".`, 2)
    const last = Number(options.last ?? lastDefault)
    if (!Number.isInteger(last) || last < 0 || last > lastMax)
      throw new CommandError(`--last must be a whole number from 0 to ${lastMax}, got "${options.last}".`, 2)
    const show = (row: Request) => output.write(`${output.json ? JSON.stringify(row) : line(row, output)}\n`)
    return tail(findClient(invocation), {
      last,
      once: options.once === true,
      model: typeof model === 'string' ? model : undefined,
      status: typeof status === 'string' ? status : undefined,
      show,
    })
  },
}

export type Tail = {
  readonly last: number
  readonly once: boolean
  /** Only requests of this model, or that ended like this. */
  readonly model?: string | undefined
  readonly status?: string | undefined
  readonly show: (row: Request) => void
}

/** Shows the latest ended requests, then each request that ends, oldest first, until it is stopped. */
export async function tail(client: Client, { last, once, model, status, show }: Tail): Promise<number> {
  const stop = untilStopped()
  // Open requests are read too: they are shown when they end.
  const query = { limit: pageMax, model, status: status === undefined ? undefined : [status, 'held'] }
  let rows = await readNewest(client, query, (read) => read.filter(isEnded).length >= last)
  for (const row of rows.filter(isEnded).slice(0, last).reverse()) show(row)
  while (!once) {
    const seen = new Set(rows.filter(isEnded).map(({ id }) => id))
    const open = rows.filter((row) => !isEnded(row)).map(({ id }) => id)
    await sleep(pollMs, undefined, { signal: stop }).catch(() => {})
    if (stop.aborted) break
    rows = await readNewest(client, query, (read) => seen.size === 0 || read.some(({ id }) => seen.has(id)))
    // Many newer requests may have begun while these were open.
    for (const id of open)
      if (!rows.some((row) => row.id === id))
        rows.push(await client.call(requestContracts.getRequest, { parameters: { id } }))
    for (const row of rows.toReversed())
      if (isEnded(row) && !seen.has(row.id) && (status ?? row.status) === row.status) show(row)
  }
  return 0
}

type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>

/** Reads the newest requests, page by page, until `isEnough`. */
async function readNewest(
  client: Client,
  query: Query,
  isEnough: (rows: readonly Request[]) => boolean,
): Promise<Request[]> {
  const rows: Request[] = []
  let cursor: string | undefined
  for (let pages = 0; pages < pagesMax; pages += 1) {
    const page: AnswerOf<typeof requestContracts.listRequests> = await client.call(requestContracts.listRequests, {
      query: { ...query, cursor },
    })
    rows.push(...page.data)
    if (page.next_cursor === null || isEnough(rows)) break
    cursor = page.next_cursor
  }
  return rows
}

function isEnded({ status }: Request): boolean {
  return status !== 'held'
}

const colors: Readonly<Record<string, string>> = { succeeded: '32', failed: '31', cancelled: '33', refused: '33' }
// As wide as the longest name of a built-in model.
const modelWidth = 19
const fullWidth = 112

/** Formats one line. On a narrow terminal, the id is left out and the line is truncated. */
function line({ id, status, created_at, model, usage, charged, latency, error }: Request, output: Output): string {
  const { color, width } = output
  const isNarrow = width !== undefined && width < fullWidth
  const tokens = usage === null ? '' : `${usage.prompt_tokens}+${usage.completion_tokens}`
  const seconds = latency.total_ms === null ? '–' : `${latency.total_ms} ms`
  const cells = [
    created_at.slice(11, isNarrow ? 19 : 23),
    status.padEnd(9),
    truncate(model ?? '–', modelWidth).padEnd(modelWidth),
    ...(isNarrow && error !== null ? [] : [tokens.padStart(isNarrow ? 9 : 11)]),
    withDecimals(charged, 6).padStart(9),
    // On a narrow terminal, the error code takes the place of the latency: it is the word that says what to do.
    ...(isNarrow ? [error?.code ?? seconds.padStart(9)] : [seconds.padStart(9), id, error?.code ?? '']),
  ]
  const text = cells.join('  ').trimEnd()
  const shown = isNarrow ? truncate(text, width) : text
  return color ? shown.replace(status, `\x1b[${colors[status]}m${status}\x1b[0m`) : shown
}
