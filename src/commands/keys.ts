import type { Database } from '../db/database.ts'
import {
  type ApiKey,
  createKey,
  findAnyKey,
  findKeysNamed,
  type LimitWindow,
  limitWindows,
  listKeys,
  revokeKey,
  updateKey,
} from '../identity/api-keys.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { findLogin } from './login-file.ts'
import { readAmount } from './read-options.ts'
import { printRemoteKey, refuseRemote } from './remote.ts'
import { printRows } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const keysCommand: Command = {
  summary: 'create, list, change and revoke API keys',
  usage: `penny keys list                     all keys, masked; those of one account with --account
  penny keys create --name NAME       a new key; its secret is shown once
      --account ID|NAME               its account (default: the only account, or the sandbox's)
      --limit USDC                    the most it may spend
      --window lifetime|day|week|month  the limit's period, in UTC (default: lifetime)
      --expires TIME                  a future ISO 8601 instant, such as 2027-01-31T00:00:00Z
  penny keys update KEY                changes name, limit, window or expiry from the next request on
      --limit USDC|none, --expires TIME|none
  penny keys revoke KEY               refuses it from the next request on
                                    KEY is a name, an id, or the beginning of an id`,
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
      throw new CommandError(`penny keys has no verb "${verb}". It has: ${Object.keys(actions).join(', ')}.`, 2)
    const login = findLogin(invocation.config)
    if (login !== undefined) {
      if (verb !== 'list') refuseRemote(login, `${verb} keys`, '/keys')
      return printRemoteKey(login, invocation.output)
    }
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
  printRows(output, (await listKeys(database, account?.id)).map(describe), { omit })
}

async function create(database: Database, { options, output }: Invocation): Promise<void> {
  const limit = readLimit(options.limit)
  const limitWindow = readWindow(options.window)
  const expiresAt = readInstant(options.expires)
  const name = typeof options.name === 'string' ? options.name.trim() : ''
  if (name === '') throw new CommandError('A key needs --name NAME.', 2)
  const account = await whichAccount(database, options.account)
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

async function update(database: Database, { words: [, named], options, output }: Invocation): Promise<void> {
  const { id } = await whichKey(database, named, options.account)
  const changes = {
    name: typeof options.name === 'string' ? options.name : undefined,
    limit: options.limit === 'none' ? null : readLimit(options.limit),
    limitWindow: readWindow(options.window),
    expiresAt: options.expires === 'none' ? null : readInstant(options.expires),
  }
  if (!(await updateKey(database, id, changes))) throw new CommandError(`There is no key ${id}.`)
  const key = await findAnyKey(database, id)
  printRows(output, key === undefined ? [] : [describe(key)], { omit })
}

async function revoke(database: Database, { words: [, named], options, output }: Invocation): Promise<void> {
  const { id, name } = await whichKey(database, named, options.account)
  if (!(await revokeKey(database, id))) throw new CommandError(`There is no key ${id}.`)
  output.write(
    output.json
      ? `${JSON.stringify({ id, revoked: true })}\n`
      : `Revoked "${name}" (${id}). Requests with this key are refused from now on.\n`,
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

/** Left out in a narrow terminal, in this order. */
const omit = ['account_id', 'revoked_at', 'created_at', 'held', 'expires_at', 'window', 'hint']

/** The key with that name or id, or whose id begins like that. Several of one name have to be told apart by id. */
async function whichKey(
  database: Database,
  named: string | undefined,
  account: string | boolean | undefined,
): Promise<ApiKey> {
  if (named === undefined) throw new CommandError('Which key? Give its name or id; penny keys list shows both.', 2)
  const owner = account === undefined ? undefined : await whichAccount(database, account)
  const found = await findKeysNamed(database, named, owner?.id)
  const live = found.filter(({ revokedAt }) => revokedAt === undefined)
  const [key, another] = live.length > 0 ? live : found
  if (key === undefined) throw new CommandError(`There is no key "${named}": penny keys list shows them.`)
  if (another !== undefined) {
    const ids = found.map(({ id, hint }) => `${id} (${hint})`)
    throw new CommandError(`More than one key is "${named}". Give the id instead: ${ids.join(', ')}.`, 2)
  }
  return key
}

function readLimit(text: string | boolean | undefined): Usdc | undefined {
  return text === undefined ? undefined : readAmount('limit', String(text))
}

function readWindow(text: string | boolean | undefined): LimitWindow | undefined {
  if (text === undefined || limitWindows.includes(text as LimitWindow)) return text as LimitWindow | undefined
  throw new CommandError(`--window must be one of ${limitWindows.join(', ')}. Got "${text}".`, 2)
}

function readInstant(text: string | boolean | undefined): Date | undefined {
  if (text === undefined) return undefined
  const instant = new Date(String(text))
  if (/^\d{4}-\d{2}-\d{2}T.*(Z|[+-]\d{2}:?\d{2})$/.test(String(text)) && !Number.isNaN(instant.getTime())) {
    if (instant.getTime() > Date.now()) return instant
    throw new CommandError(`--expires ${text} is in the past: the key would never work.`, 2)
  }
  throw new CommandError(`--expires must be an ISO 8601 instant such as 2027-01-31T00:00:00Z. Got "${text}".`, 2)
}
