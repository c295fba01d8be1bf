import { type AccountEvent, operatorActor, writeAccountLog } from '../db/account-log.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import {
  type Alongside,
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
import { requestDepositAddress } from '../ledger/deposit-addresses.ts'
import { format, type Usdc } from '../money/usdc.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { readKeyOptions } from './key-options.ts'
import { findLogin } from './login-file.ts'
import { readAmount, refuseWordAfter } from './read-options.ts'
import { printRemoteKey, refuseRemote } from './remote.ts'
import { printRows } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const keysCommand: Command = {
  usage: [
    ['penny keys list', 'List keys, masked; --account limits the list to one account'],
    ['penny keys create', 'Create a key. Its secret is shown once'],
    ['--name NAME', 'Its name'],
    ['--account ID|NAME', 'Its account (default: the only account, or the demo account of the sandbox)'],
    ['--limit USDC', 'Maximum spend'],
    ['--window lifetime|day|week|month', 'Period of the limit, in UTC (default: lifetime)'],
    ['--expires TIME', 'Future ISO 8601 time, such as 2027-01-31T00:00:00Z'],
    ['--models MODEL,…|all', 'Allowed models (default: all)'],
    ['--max-cost USDC', 'Maximum cost of one request, web search included'],
    ['--web-tools on|off', 'Allow web search and web fetch (default: on)'],
    ['--ips ADDRESS,…|all', 'Allowed IP addresses and CIDR blocks (default: all)'],
    [
      'penny keys update KEY',
      'Change any of these options, from the next request on. "none" removes --limit, --expires or --max-cost. KEY is a name, an id or the beginning of an id',
    ],
    ['penny keys revoke KEY', 'Refuse the key from the next request on'],
  ],
  options: {
    name: { type: 'string' },
    account: { type: 'string' },
    limit: { type: 'string' },
    window: { type: 'string' },
    expires: { type: 'string' },
    models: { type: 'string' },
    'max-cost': { type: 'string' },
    'web-tools': { type: 'string' },
    ips: { type: 'string' },
  },
  wordsMax: 2,
  async run(invocation) {
    const [verb = 'list'] = invocation.words
    const action = actions[verb]
    if (action === undefined)
      throw new CommandError(`penny keys has no verb "${verb}". It has: ${Object.keys(actions).join(', ')}.`, 2)
    refuseWordAfter(['list', 'create'], invocation.words)
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

async function create(database: Database, { config, options, output }: Invocation): Promise<void> {
  const limit = readLimit(options.limit)
  const keyOptions = readKeyOptions(options, config)
  const limitWindow = readWindow(options.window)
  const expiresAt = readInstant(options.expires)
  const name = typeof options.name === 'string' ? options.name.trim() : ''
  if (name === '') throw new CommandError('Give the key a name: --name NAME.', 2)
  const account = await whichAccount(database, options.account)
  const created = await createKey(
    database,
    {
      partition: account.partition,
      accountId: account.id,
      name,
      limit,
      limitWindow,
      expiresAt,
      options: keyOptions,
    },
    recorded({ partition: account.partition, accountId: account.id }, 'key_created', { name }),
  )
  // A 402 response names the deposit address, so that programs without money can find it.
  await requestDepositAddress(database, account)
  if (output.json)
    output.write(`${JSON.stringify({ id: created.id, api_key: created.secret, account_id: account.id })}\n`)
  else output.write(`${created.secret}\n\nThis is the only time the key is shown. Its id is ${created.id}.\n`)
}

async function update(database: Database, { words: [, named], config, options, output }: Invocation): Promise<void> {
  const { account, json: _, help: __, ...asked } = options
  if (named !== undefined && Object.keys(asked).length === 0)
    throw new CommandError('Nothing to change. Add an option such as --limit 5; see penny keys --help.', 2)
  const key = await whichKey(database, named, account)
  const { id, name, revokedAt, disabled, options: current } = key
  if (revokedAt !== undefined && !disabled)
    throw new CommandError(
      `"${name}" (${id}) is revoked and cannot be changed. Create a new key with penny keys create.`,
    )
  const changes = {
    name: typeof options.name === 'string' ? options.name : undefined,
    limit: options.limit === 'none' ? null : readLimit(options.limit),
    limitWindow: readWindow(options.window),
    expiresAt: options.expires === 'none' ? null : readInstant(options.expires),
    options: readKeyOptions(options, config, current.allowedModels),
  }
  const record = recorded(key, 'key_changed', { name, changed: Object.keys(asked) })
  if (!(await updateKey(database, id, changes, record))) throw new CommandError(`No key has the id ${id}.`)
  const changed = await findAnyKey(database, id)
  printRows(output, changed === undefined ? [] : [describe(changed)], { omit })
}

async function revoke(database: Database, { words: [, named], options, output }: Invocation): Promise<void> {
  const key = await whichKey(database, named, options.account)
  const { id, name, revokedAt, disabled } = key
  if (!(await revokeKey(database, id, recorded(key, 'key_revoked', { name }))))
    throw new CommandError(`No key has the id ${id}.`)
  const done =
    revokedAt === undefined || disabled
      ? `Revoked "${name}" (${id}). Requests with this key are refused from now on.`
      : `"${name}" (${id}) was already revoked, at ${revokedAt.toISOString()}.`
  output.write(output.json ? `${JSON.stringify({ id, revoked: true })}\n` : `${done}\n`)
}

/** Logs what the operator did, for the members of the account. */
function recorded(account: AccountRef, event: AccountEvent, facts: Readonly<Record<string, unknown>>): Alongside {
  return (connection, keyId) =>
    writeAccountLog(connection, account, { event, actor: operatorActor, facts: { key_id: keyId, ...facts } })
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
    models: key.options.allowedModels.join(',') || null,
    max_cost: key.options.maxRequestCost === undefined ? null : format(key.options.maxRequestCost),
    web_tools: key.options.webTools ? null : 'off',
    ips: key.options.allowedIps.join(',') || null,
    expires_at: key.expiresAt?.toISOString() ?? null,
    revoked_at: key.revokedAt?.toISOString() ?? null,
    created_at: key.createdAt.toISOString(),
  }
}

/** Left out in a narrow terminal, in this order. */
const omit = [
  'ips',
  'models',
  'web_tools',
  'max_cost',
  'account_id',
  'revoked_at',
  'created_at',
  'held',
  'expires_at',
  'window',
  'hint',
]

/** Finds a key by name, id or prefix of an id. Throws when several keys have the name. */
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
  if (key === undefined) throw new CommandError(`No key is named "${named}". penny keys list shows all keys.`)
  if (another !== undefined) {
    const ids = found.map(({ id, hint }) => `${id} (${hint})`)
    throw new CommandError(`More than one key is named "${named}". Give the id instead: ${ids.join(', ')}.`, 2)
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
    throw new CommandError(`--expires ${text} is in the past. Use a future time.`, 2)
  }
  throw new CommandError(`--expires must be an ISO 8601 instant such as 2027-01-31T00:00:00Z. Got "${text}".`, 2)
}
