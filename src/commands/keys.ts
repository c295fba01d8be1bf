import type { AnswerOf } from '../openapi/contract.ts'
import { keyContracts } from '../openapi/contracts/keys.ts'
import { accountOption, accountUsage, type Client, findClient } from './client.ts'
import { type Command, CommandError, type Invocation } from './command.ts'
import { namingOptions, readBody } from './fields.ts'
import { refuseWordAfter } from './read-options.ts'
import { printRows } from './table.ts'

type Key = AnswerOf<typeof keyContracts.updateKey>

/** The field of each option. */
const fields = {
  name: 'name',
  limit: 'limit',
  window: 'limit_window',
  expires: 'expires_at',
  models: 'allowed_models',
  'max-cost': 'max_request_cost',
  'web-tools': 'web_tools',
  ips: 'allowed_ips',
} as const

export const keysCommand: Command = {
  usage: [
    ['penny keys list', 'List the keys of an account, masked'],
    ['penny keys create', 'Create a key. Its secret is shown once'],
    ['--name NAME', 'Its name'],
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
    ...accountUsage,
  ],
  options: {
    ...accountOption,
    name: { type: 'string' },
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
    await action(findClient(invocation), invocation)
    return 0
  },
}

const actions: Readonly<Record<string, (client: Client, invocation: Invocation) => Promise<void>>> = {
  list,
  create,
  update,
  revoke,
}

async function list(client: Client, { output }: Invocation): Promise<void> {
  const keys = client.manages ? await listAll(client) : [await client.call(keyContracts.getOwnKey)]
  printRows(output, keys.map(describe), { omit })
  if (!client.manages && !output.json) output.write(`Other keys are in the dashboard: ${client.origin}/keys\n`)
}

async function create(client: Client, { options, output }: Invocation): Promise<void> {
  if (typeof options.name !== 'string' || options.name.trim() === '')
    throw new CommandError('Give the key a name: --name NAME.', 2)
  const body = readBody(keyContracts.createKey, options, fields)
  const { id, secret } = await namingOptions(fields, client.call(keyContracts.createKey, { body }))
  if (output.json) output.write(`${JSON.stringify({ id, api_key: secret })}\n`)
  else output.write(`${secret}\n\nThis is the only time the key is shown. Its id is ${id}.\n`)
}

async function update(client: Client, { words: [, named], options, output }: Invocation): Promise<void> {
  const body = readBody(keyContracts.updateKey, options, fields)
  if (named !== undefined && Object.keys(body).length === 0)
    throw new CommandError('Nothing to change. Add an option such as --limit 5; see penny keys --help.', 2)
  const { id, name, status } = await whichKey(client, named)
  if (status === 'revoked')
    throw new CommandError(
      `"${name}" (${id}) is revoked and cannot be changed. Create a new key with penny keys create.`,
    )
  const input = { parameters: { id }, body }
  printRows(output, [describe(await namingOptions(fields, client.call(keyContracts.updateKey, input)))], { omit })
}

async function revoke(client: Client, { words: [, named], output }: Invocation): Promise<void> {
  const { id, name, status, revoked_at: revokedAt } = await whichKey(client, named)
  await client.call(keyContracts.revokeKey, { parameters: { id } })
  const done =
    status === 'revoked'
      ? `"${name}" (${id}) was already revoked, at ${revokedAt}.`
      : `Revoked "${name}" (${id}). Requests with this key are refused from now on.`
  output.write(output.json ? `${JSON.stringify({ id, revoked: true })}\n` : `${done}\n`)
}

function describe(key: Key): Record<string, string | null> {
  return {
    id: key.id,
    hint: key.hint,
    name: key.name,
    status: key.status,
    limit: key.limit,
    window: key.limit === null ? null : key.limit_window,
    spent: key.spent,
    held: key.held,
    models: key.allowed_models.join(',') || null,
    max_cost: key.max_request_cost,
    web_tools: key.web_tools ? null : 'off',
    ips: key.allowed_ips.join(',') || null,
    expires_at: key.expires_at,
    revoked_at: key.revoked_at,
    created_at: key.created_at,
  }
}

/** Left out in a narrow terminal, in this order. */
const omit = [
  ...['ips', 'models', 'web_tools', 'max_cost', 'revoked_at', 'created_at', 'held', 'expires_at', 'window', 'hint'],
]

async function listAll(client: Client): Promise<readonly Key[]> {
  return (await client.call(keyContracts.listKeys)).data
}

/** Finds a key by name, id or prefix of an id. Throws when several keys have the name. */
async function whichKey(client: Client, named: string | undefined): Promise<Key> {
  if (named === undefined) throw new CommandError('Which key? Give its name or id; penny keys list shows both.', 2)
  const found = (await listAll(client)).filter(
    ({ id, name }) => name === named || (named.length >= prefixLengthMin && id.startsWith(named.toLowerCase())),
  )
  const live = found.filter(({ revoked_at: revokedAt }) => revokedAt === null)
  const [key, another] = live.length > 0 ? live : found
  if (key === undefined) throw new CommandError(`No key is named "${named}". penny keys list shows all keys.`)
  if (another !== undefined) {
    const ids = found.map(({ id, hint }) => `${id} (${hint})`)
    throw new CommandError(`More than one key is named "${named}". Give the id instead: ${ids.join(', ')}.`, 2)
  }
  return key
}

const prefixLengthMin = 8
