import type { Database } from '../db/database.ts'
import {
  type ApiKey,
  createKey,
  findAnyKey,
  type LimitWindow,
  limitWindows,
  listKeys,
  revokeKey,
  updateKey,
} from '../identity/api-keys.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { type Command, CommandError, type Invocation, printRows } from './command.ts'
import { readAmount } from './read-options.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const keysCommand: Command = {
  summary: 'create, list, change and revoke API keys',
  usage: `penny keys list                     all keys, masked; those of one account with --account
  penny keys create --name NAME       a new key, shown this once
      --account ID|NAME               whose it is (the only account's, or the sandbox's, unless given)
      --limit USDC                    the most it may spend
      --window lifetime|day|week|month  per which time (UTC; lifetime unless given)
      --expires TIME                  an ISO 8601 instant, such as 2027-01-31T00:00:00Z
  penny keys update ID                 changes name, limit, window or expiry from the next request on
      --limit USDC|none, --expires TIME|none
  penny keys revoke ID                from the next request on`,
  options: {
    name: { type: 'string' },
    account: { type: 'string' },
    limit: { type: 'string' },
    window: { type: 'string' },
    expires: { type: 'string' },
  },
  verbs: ['list', 'create', 'update', 'revoke'],
  wordsMax: 2,
  async run(invocation) {
    const [verb = 'list'] = invocation.words
    const action = actions[verb]
    if (action === undefined)
      throw new CommandError(`penny keys does not know "${verb}": it can create, list, update and revoke.`, 2)
    await withDatabase(invocation.config, (database) => action(database, invocation))
    return 0
  },
}

const actions: Readonly<Record<string, (database: Database, invocation: Invocation) => Promise<void>>> = {
  list,
  create,
  update,
  revoke,
}

async function list(database: Database, { options, output }: Invocation): Promise<void> {
  const account = options.account === undefined ? undefined : await whichAccount(database, options.account)
  printRows(output, (await listKeys(database, account?.id)).map(describe))
}

async function create(database: Database, { options, output }: Invocation): Promise<void> {
  const limit = readLimit(options.limit)
  const limitWindow = readWindow(options.window)
  const expiresAt = readInstant(options.expires)
  const account = await whichAccount(database, options.account)
  const name = typeof options.name === 'string' && options.name !== '' ? options.name : 'unnamed'
  const created = await createKey(database, {
    partition: account.partition,
    accountId: account.id,
    name,
    limit,
    limitWindow,
    expiresAt,
  })
  if (output.json)
    output.write(`${JSON.stringify({ id: created.id, api_key: created.secret, account_id: account.id })}\n`)
  else output.write(`${created.secret}\n\nThis is the only time the key is shown. Its id is ${created.id}.\n`)
}

async function update(database: Database, { words: [, id], options, output }: Invocation): Promise<void> {
  const changes = {
    name: typeof options.name === 'string' ? options.name : undefined,
    limit: options.limit === 'none' ? null : readLimit(options.limit),
    limitWindow: readWindow(options.window),
    expiresAt: options.expires === 'none' ? null : readInstant(options.expires),
  }
  if (!(await updateKey(database, readId(id), changes))) throw new CommandError(`There is no key ${id}.`)
  const key = await findAnyKey(database, readId(id))
  printRows(output, key === undefined ? [] : [describe(key)])
}

async function revoke(database: Database, { words: [, id], output }: Invocation): Promise<void> {
  if (!(await revokeKey(database, readId(id)))) throw new CommandError(`There is no key ${id}.`)
  output.write(
    output.json
      ? `${JSON.stringify({ id, revoked: true })}\n`
      : `Revoked. Requests with this key are refused from now on.\n`,
  )
}

function describe(key: ApiKey): Record<string, string | null> {
  return {
    id: key.id,
    hint: key.hint,
    name: key.name,
    account_id: key.accountId,
    limit: key.limit === undefined ? null : format(key.limit),
    window: key.limit === undefined ? null : key.limitWindow,
    spent: format(key.spent),
    held: format(key.held),
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
    created_at: key.createdAt.toISOString(),
  }
}

function readId(id: string | undefined): string {
  if (id !== undefined && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)) return id
  throw new CommandError('Which key? Name it by its id; penny keys list shows the ids.', 2)
}

function readLimit(text: string | boolean | undefined): Usdc | undefined {
  return text === undefined ? undefined : readAmount('limit', String(text))
}

function readWindow(text: string | boolean | undefined): LimitWindow | undefined {
  if (text === undefined || limitWindows.includes(text as LimitWindow)) return text as LimitWindow | undefined
  throw new CommandError(`--window must be one of ${limitWindows.join(', ')}, got "${text}".`, 2)
}

function readInstant(text: string | boolean | undefined): Date | undefined {
  if (text === undefined) return undefined
  const instant = new Date(String(text))
  if (/^\d{4}-\d{2}-\d{2}T.*(Z|[+-]\d{2}:?\d{2})$/.test(String(text)) && !Number.isNaN(instant.getTime()))
    return instant
  throw new CommandError(`--expires must be an ISO 8601 instant such as 2027-01-31T00:00:00Z, got "${text}".`, 2)
}
