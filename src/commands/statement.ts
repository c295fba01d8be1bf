import { readStatement, type Statement } from '../ledger/statement.ts'
import { format, fromAtomic } from '../money/usdc.ts'
import { type Command, CommandError } from './command.ts'
import { findLogin } from './login-file.ts'
import { refuseRemote } from './remote.ts'
import { printRows, type Row } from './table.ts'
import { whichAccount } from './which-account.ts'
import { withDatabase } from './with-database.ts'

export const statementCommand: Command = {
  usage: [
    ['penny statement', 'Statement of this month of the only account, or of the demo account of the sandbox'],
    ['--month YYYY-MM', 'Another month, in UTC'],
    ['--by key', 'Charges by key'],
    ['--account ID|NAME', 'Another account'],
  ],
  options: { month: { type: 'string' }, by: { type: 'string' }, account: { type: 'string' } },
  async run({ options, config, output }) {
    const { from, to } = readMonth(options.month)
    if (options.by !== undefined && options.by !== 'key')
      throw new CommandError(`--by must be key. Got "${options.by}".`, 2)
    const login = findLogin(config)
    if (login !== undefined) refuseRemote(login, 'read statements', '/funds/statement')
    return withDatabase(config, async (database) => {
      const { id, partition } = await whichAccount(database, options.account)
      const statement = await readStatement(database, { partition, accountId: id }, from, to)
      printRows(output, options.by === 'key' ? keyRows(statement) : lineRows(statement))
      return 0
    })
  },
}

function lineRows({ opening, closing, lines }: Statement): readonly Row[] {
  const balance = (what: string, amount: typeof opening) => ({ what, model: null, count: null, amount: format(amount) })
  return [
    balance('opening_balance', opening),
    ...lines.map(({ kind, model, count, amount }) => ({
      what: kind,
      model: model ?? null,
      count,
      amount: format(amount),
    })),
    balance('closing_balance', closing),
  ]
}

function keyRows({ keys }: Statement): readonly Row[] {
  return keys.map(({ keyId, name, hint, requests, searches, inference, search }) => ({
    key_id: keyId,
    name,
    hint,
    requests,
    searches,
    inference: format(inference),
    search: format(search),
    amount: format(fromAtomic(inference + search)),
  }))
}

function readMonth(text: string | boolean | undefined): { readonly from: Date; readonly to: Date } {
  const month = String(text ?? new Date().toISOString().slice(0, 7))
  const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? []
  if (year === undefined) throw new CommandError(`--month must be a month such as 2026-11. Got "${text}".`, 2)
  return {
    from: new Date(Date.UTC(Number(year), Number(number) - 1)),
    to: new Date(Date.UTC(Number(year), Number(number))),
  }
}
