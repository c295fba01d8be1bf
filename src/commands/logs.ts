import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../db/database.ts'
import { listPartitions } from '../ledger/accounts.ts'
import { formatRequestId, type RequestId } from '../ledger/request-id.ts'
import { type LoggedRequest, readRequestsById, readRequestsSince, type TailFilter } from '../ledger/request-tail.ts'
import { endedStatuses } from '../ledger/states.ts'
import { format } from '../money/usdc.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { findLogin } from './login-file.ts'
import { type RemoteRequest, tailRemote } from './remote.ts'
import { untilStopped } from './stop-signal.ts'
import { truncate, withDecimals } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

const pollMs = 300
const lastDefault = 10
const lastMax = 1_000
const openMax = 1_000

export const logsCommand: Command = {
  usage: [
    ['penny requests list', `Show the latest ${lastDefault} requests. With --json, one object per line`],
    ['penny requests tail', 'The same, then new ones until Ctrl-C; also: penny logs tail'],
    ['--last N', 'Start with this many requests'],
    ['--account ID|NAME', 'Only this account; ignored after penny login, which shows the account of its key'],
    ['--model NAME', 'Only this model'],
    ['--status STATUS', `Only ${endedStatuses.join(', ')}`],
    ['--once', 'Do not wait for new requests: tail becomes list'],
  ],
  options: {
    last: { type: 'string' },
    account: { type: 'string' },
    model: { type: 'string' },
    status: { type: 'string' },
    once: { type: 'boolean' },
  },
  wordsMax: 1,
  async run({ words: [verb = 'tail'], options, config, output }) {
    if (verb !== 'tail') throw new CommandError(`penny logs has no verb "${verb}". It has: tail.`, 2)
    if (options.status !== undefined && !endedStatuses.some((status) => status === options.status))
      throw new CommandError(`--status must be one of ${endedStatuses.join(', ')}. Got "${options.status}".`, 2)
    const last = Number(options.last ?? lastDefault)
    if (!Number.isInteger(last) || last < 0 || last > lastMax)
      throw new CommandError(`--last must be a whole number from 0 to ${lastMax}, got "${options.last}".`, 2)
    const login = findLogin(config)
    if (login !== undefined) {
      const show = (row: RemoteRequest) =>
        output.write(`${output.json ? JSON.stringify(row) : line(ofRemote(row), output)}\n`)
      const [model, status] = [textOf(options.model), textOf(options.status)]
      return tailRemote(login, { last, once: options.once === true, model, status, show })
    }
    return withDatabase(config, async (database) => {
      const account = options.account === undefined ? undefined : await whichAccount(database, options.account)
      const show = (row: LoggedRequest) =>
        output.write(
          `${output.json ? JSON.stringify(plain(row)) : line({ ...row, id: formatRequestId(row.id) }, output)}\n`,
        )
      // The command may lack the service's LEDGER_PARTITIONS.
      const known = await listPartitions(database)
      const partitions = Math.max(config.ledgerPartitions, ...known.map((partition) => partition + 1))
      const filter = { partitions, accountId: account?.id, model: textOf(options.model) }
      await follow(database, { last, once: options.once === true, filter, status: textOf(options.status), show })
      return 0
    })
  },
}

function textOf(option: string | boolean | undefined): string | undefined {
  return typeof option === 'string' ? option : undefined
}

type FollowOptions = {
  readonly last: number
  readonly once: boolean
  readonly filter: TailFilter
  readonly status: string | undefined
  readonly show: (row: LoggedRequest) => void
}

/** Requests are printed when they end. Those that are still open are read again later. */
async function follow(database: Database, { last, once, filter, status, show }: FollowOptions): Promise<void> {
  const stop = untilStopped()
  const ended = status === undefined ? endedStatuses : [status]
  const open = new Set<RequestId>()
  const seen = new Set<RequestId>()
  const print = (rows: readonly LoggedRequest[]) => {
    for (const row of rows) {
      if (seen.has(row.id)) continue
      if (row.status === 'held') {
        open.add(row.id)
        continue
      }
      open.delete(row.id)
      seen.add(row.id)
      if (ended.some((wanted) => wanted === row.status)) show(row)
    }
  }
  // Open requests are read separately, so that they do not count towards the last N.
  let cursor = await readRequestsSince(database, { ...filter, statuses: ended, last })
  print(cursor.rows)
  if (once) return
  print((await readRequestsSince(database, { ...filter, statuses: ['held'], last: openMax })).rows)
  // Reads overlap. Requests that ended before this read began are not printed by the next one.
  for (const { id, status } of (await readRequestsSince(database, { ...filter, since: cursor.next })).rows)
    (status === 'held' ? open : seen).add(id)
  while (!stop.aborted) {
    await sleep(pollMs, undefined, { signal: stop }).catch(() => {})
    cursor = await readRequestsSince(database, { ...filter, since: cursor.next })
    print(cursor.rows)
    if (open.size > 0) print(await readRequestsById(database, [...open]))
    // Requests older than the overlap cannot appear again.
    for (const id of seen) if (id < cursor.next) seen.delete(id)
  }
}

function plain(row: LoggedRequest): object {
  return {
    id: formatRequestId(row.id),
    status: row.status,
    created_at: row.createdAt.toISOString(),
    account_id: row.accountId,
    key_hint: row.keyHint ?? null,
    model: row.model ?? null,
    stream: row.stream,
    error_code: row.errorCode ?? null,
    prompt_tokens: row.promptTokens ?? null,
    completion_tokens: row.completionTokens ?? null,
    charged_atomic: row.charged.toString(),
    charged: format(row.charged),
    total_ms: row.totalMs ?? null,
  }
}

const colors: Readonly<Record<string, string>> = { succeeded: '32', failed: '31', cancelled: '33', refused: '33' }

type LogLine = Pick<
  LoggedRequest,
  'createdAt' | 'model' | 'promptTokens' | 'completionTokens' | 'totalMs' | 'errorCode'
> & { readonly id: string; readonly status: string; readonly charged: bigint }

function ofRemote(row: RemoteRequest): LogLine {
  return {
    id: row.id,
    status: row.status,
    createdAt: new Date(row.created_at),
    model: row.model ?? undefined,
    promptTokens: row.usage?.prompt_tokens ?? undefined,
    completionTokens: row.usage?.completion_tokens ?? undefined,
    charged: BigInt(row.charged_atomic),
    totalMs: row.latency.total_ms ?? undefined,
    errorCode: row.error?.code ?? undefined,
  }
}

// As wide as the longest name of a built-in model.
const modelWidth = 19
const fullWidth = 112

/** Formats one line. On a narrow terminal, the id is left out and the line is truncated. */
function line(row: LogLine, { color, width }: Output): string {
  const isNarrow = width !== undefined && width < fullWidth
  const tokens = row.promptTokens === undefined ? '' : `${row.promptTokens}+${row.completionTokens}`
  const seconds = row.totalMs === undefined ? '–' : `${row.totalMs} ms`
  const cells = [
    row.createdAt.toISOString().slice(11, isNarrow ? 19 : 23),
    row.status.padEnd(9),
    truncate(row.model ?? '–', modelWidth).padEnd(modelWidth),
    ...(isNarrow && row.errorCode !== null ? [] : [tokens.padStart(isNarrow ? 9 : 11)]),
    withDecimals(format(row.charged), 6).padStart(9),
    // On a narrow terminal, the error code takes the place of the latency: it is the word that says what to do.
    ...(isNarrow ? [row.errorCode ?? seconds.padStart(9)] : [seconds.padStart(9), row.id, row.errorCode ?? '']),
  ]
  const text = cells.join('  ').trimEnd()
  const shown = isNarrow ? truncate(text, width) : text
  return color ? shown.replace(row.status, `\x1b[${colors[row.status]}m${row.status}\x1b[0m`) : shown
}
