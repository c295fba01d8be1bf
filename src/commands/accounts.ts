import { randomUUID } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import { dueRulesOf } from '../config/config.ts'
import type { Database } from '../db/database.ts'
import {
  type Account,
  accountsPerPage,
  createAccount,
  findAccount,
  pageAccounts,
  resumeAccount,
  suspendAccount,
} from '../ledger/accounts.ts'
import { listAdjustments } from '../ledger/adjustments.ts'
import { accountNamed } from '../ledger/named-account.ts'
import { formatRequestId, parseRequestId, type RequestId } from '../ledger/request-id.ts'
import { format, fromAtomic, InvalidAmountError, parse } from '../money/usdc.ts'
import { giveBack } from '../settlement/give-back.ts'
import { printAccountKey } from './account-key.ts'
import { type Command, CommandError, type Invocation, type Output } from './command.ts'
import { confirm, confirmUsage } from './confirm.ts'
import { readUuid, refuseWordAfter } from './read-options.ts'
import { withRetryId } from './retry-id.ts'
import { readSellerBalance } from './seller-balance.ts'
import { printRows } from './table.ts'
import { withDatabase } from './with-database.ts'

export const accountsCommand: Command = {
  usage: [
    [
      'penny accounts',
      `List the newest ${accountsPerPage.toLocaleString('en')} accounts with available and held money and their status; with --json, all accounts`,
    ],
    ['penny accounts create', 'Create an empty account'],
    ['--name NAME', 'Its name'],
    [
      'penny accounts suspend ACCOUNT',
      'Refuse new requests. The customer can still withdraw. ACCOUNT is an id or a name',
    ],
    ['--reason TEXT', 'Why; stored with the account'],
    ['penny accounts resume ACCOUNT', 'Accept requests again'],
    ['penny accounts adjust ACCOUNT', 'Refund charges as credit'],
    ['--amount USDC', 'Amount to refund; a negative amount takes back an earlier refund'],
    ['--reason TEXT', 'Why; shown to the customer'],
    ['--request req_…', 'Refund this request: in all at most its charge'],
    ['--id UUID', 'Retry an adjustment with the id it printed; it is made only once'],
    ...confirmUsage,
    ['penny accounts adjustments', 'List adjustments with reason and author; add an ACCOUNT to list only its own'],
    [
      'penny accounts key ID --yes',
      'Print the private key of an account, derived from MASTER_KEY and the account id. It lets the customer leave without the service',
    ],
  ],
  options: {
    name: { type: 'string' },
    reason: { type: 'string' },
    amount: { type: 'string' },
    id: { type: 'string' },
    request: { type: 'string' },
    yes: { type: 'boolean' },
  },
  wordsMax: 2,
  async run(invocation) {
    const [verb = 'list'] = invocation.words
    // Works without a database, in case everything else is lost.
    if (verb === 'key') return printAccountKey(invocation)
    const action = actions[verb]
    if (action === undefined)
      throw new CommandError(
        `penny accounts has no verb "${verb}". It has: ${Object.keys(actions).join(', ')}, key.`,
        2,
      )
    refuseWordAfter(['list', 'create'], invocation.words)
    await withDatabase(invocation.config, (database) => action(database, invocation))
    return 0
  },
}

const actions: Readonly<Record<string, (database: Database, invocation: Invocation) => Promise<void>>> = {
  list: (database, { output }) => printAccounts(database, output),
  create,
  suspend,
  resume,
  adjust,
  adjustments,
}

export async function printAccounts(database: Database, output: Output): Promise<void> {
  const pages = pageAccounts(database)
  if (output.json) {
    // Each account is written as soon as it is read: all of them may not fit into memory.
    let before = '[\n'
    for await (const page of pages) {
      for (const account of page) {
        output.write(`${before}  ${JSON.stringify(describe(account))}`)
        before = ',\n'
      }
    }
    output.write(before === '[\n' ? '[]\n' : '\n]\n')
    return
  }
  const { value: newest = [] } = await pages.next()
  printRows(output, newest.map(describe), { omit })
  if ((await pages.next()).done !== true)
    output.write(
      `These are the newest ${accountsPerPage.toLocaleString('en')} accounts. List all: penny accounts --json\n`,
    )
}

async function create(database: Database, { options, config, output }: Invocation): Promise<void> {
  if (typeof options.name !== 'string' || options.name === '')
    throw new CommandError('Give the account a name: --name NAME.', 2)
  printRows(output, [describe(await createAccount(database, options.name, config.ledgerPartitions))])
}

async function suspend(database: Database, { words: [, id], options, output }: Invocation): Promise<void> {
  const account = await named(database, id)
  await suspendAccount(database, account, readReason(options.reason))
  const was = account.suspendedReason
  await report(database, account, output, [
    was === undefined
      ? `Suspended ${account.name}: new requests are refused.`
      : `${account.name} was already suspended (${was}). The reason is replaced.`,
    `Undo: penny accounts resume ${account.id}`,
  ])
}

async function resume(database: Database, { words: [, id], output }: Invocation): Promise<void> {
  const account = await named(database, id)
  await resumeAccount(database, account)
  const isChanged = account.suspendedReason !== undefined
  await report(database, account, output, [
    isChanged
      ? `Resumed ${account.name}: requests are accepted again.`
      : `${account.name} was not suspended. Nothing changed.`,
  ])
}

/** Prints the row for programs, sentences for people. */
async function report(database: Database, account: Account, output: Output, lines: readonly string[]): Promise<void> {
  if (output.json) printRows(output, [describe((await findAccount(database, account.partition, account.id))!)])
  else output.write(`${lines.join('\n')}\n`)
}

async function adjust(database: Database, invocation: Invocation): Promise<void> {
  const { words, options, config, output } = invocation
  const account = await named(database, words[1])
  const amount = readAmount(options.amount)
  const reason = readReason(options.reason)
  const id = typeof options.id === 'string' ? readUuid('id', options.id) : randomUUID()
  const { max } = dueRulesOf(config)
  if (-amount > max)
    throw new CommandError(`At most ${format(max)} USDC can be taken back at a time. Take it back in several parts.`)
  const question =
    amount > 0n
      ? `Refund ${format(amount)} USDC as credit to ${account.name}`
      : `Take back ${format(-amount)} USDC of refunded credit from ${account.name}`
  await confirm(invocation, `${question} (${account.id})?`)
  const madeBy = `${userInfo().username}@${hostname()}`
  const adjustment = { id, amount, reason, madeBy, requestId: readRequest(options.request) }
  const { decision, room } = await withRetryId('adjustment', id, output, () =>
    giveBack(database, account, adjustment, () => readSellerBalance(config.dataDir)),
  )
  if (decision === 'ledger_frozen') throw new CommandError('The ledger is frozen. penny audit shows why.')
  if (decision === 'exceeds_room')
    throw new CommandError(
      amount > 0n
        ? `At most ${format(room)} USDC can be refunded: that is what ${account.name} was charged${options.request === undefined ? '' : ' for this request'}. To give more, send a deposit to its address (penny deposit).`
        : `At most ${format(room)} USDC can be taken back: that is what remains of the refunds to ${account.name}.`,
    )
  const { spendable } = (await findAccount(database, account.partition, account.id))!
  if (output.json)
    output.write(`${JSON.stringify({ id, amount_atomic: `${amount}`, decision, spendable_atomic: `${spendable}` })}\n`)
  else
    output.write(
      `${decision === 'stored' ? 'Already adjusted' : 'Adjusted'}: ${account.name} can spend ${format(spendable)} USDC.\n`,
    )
}

async function adjustments(database: Database, { words: [, id], output }: Invocation): Promise<void> {
  const account = id === undefined ? undefined : await named(database, id)
  const rows = await listAdjustments(database, account?.id, adjustmentsMax)
  printRows(
    output,
    rows.map((row) => ({
      id: row.id,
      account_id: row.accountId,
      amount: format(fromAtomic(row.amount)),
      request: row.requestId === null ? '' : formatRequestId(row.requestId),
      reason: row.reason,
      made_by: row.madeBy,
      created_at: row.createdAt.toISOString(),
    })),
  )
}

const adjustmentsMax = 1_000

/** Columns that a narrow terminal omits, in this order. */
const omit = ['closed_at', 'suspended', 'gateway', 'credit', 'created_at', 'held']

function readRequest(text: unknown): RequestId | undefined {
  if (typeof text !== 'string') return undefined
  const id = parseRequestId(text)
  if (id === undefined) throw new CommandError(`${text} is not a request id: request ids begin with req_.`, 2)
  return id
}

function named(database: Database, id: string | undefined): Promise<Account> {
  if (id === undefined) throw new CommandError('Which account? Give its id or name; penny accounts lists them.', 2)
  return accountNamed(database, id)
}

function readReason(reason: string | boolean | undefined): string {
  if (typeof reason === 'string' && reason.trim() !== '' && reason.length <= 500) return reason.trim()
  throw new CommandError('Give a reason with --reason TEXT, at most 500 characters. It is stored.', 2)
}

function readAmount(text: string | boolean | undefined): bigint {
  try {
    const [, sign, digits] = /^(-?)(.+)$/.exec(String(text ?? '')) ?? []
    const amount = parse(digits ?? '')
    if (amount > 0n) return sign === '-' ? -amount : amount
  } catch (error) {
    if (!(error instanceof InvalidAmountError)) throw error
  }
  throw new CommandError(
    `--amount must be an amount of USDC such as 2.50 or -2.50, with at most six decimals. Got "${text ?? ''}".`,
    2,
  )
}

function describe(account: Account): Record<string, string | null> {
  return {
    id: account.id,
    name: account.name,
    spendable: format(account.spendable),
    gateway: format(account.gateway),
    credit: format(account.credit),
    held: format(account.held),
    suspended: account.suspendedReason ?? null,
    created_at: account.createdAt.toISOString(),
    closed_at: account.closedAt?.toISOString() ?? null,
  }
}
