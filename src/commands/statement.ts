import type { AnswerOf } from '../openapi/contract.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { accountOption, accountUsage, findClient } from './client.ts'
import { type Command, CommandError } from './command.ts'
import { namingOptions } from './fields.ts'
import { printRows, type Row } from './table.ts'

type Statement = AnswerOf<typeof fundsContracts.getStatement>

export const statementCommand: Command = {
  usage: [
    ['penny statement', 'Statement of this month'],
    ['--month YYYY-MM', 'Another month, in UTC'],
    ['--by key', 'Charges by key'],
    ...accountUsage,
  ],
  options: { ...accountOption, month: { type: 'string' }, by: { type: 'string' } },
  async run(invocation) {
    const { options, output } = invocation
    if (options.by !== undefined && options.by !== 'key')
      throw new CommandError(`--by must be key. Got "${options.by}".`, 2)
    const month = typeof options.month === 'string' ? options.month : undefined
    const client = findClient(invocation)
    const call = client.call(fundsContracts.getStatement, { query: { month } })
    const statement = await namingOptions({ month: 'month' }, call)
    printRows(output, options.by === 'key' ? keyRows(statement) : lineRows(statement))
    return 0
  },
}

function lineRows({ opening, closing, lines }: Statement): readonly Row[] {
  const balance = (what: string, amount: string) => ({ what, model: null, count: null, amount })
  return [
    balance('opening_balance', opening),
    ...lines.map(({ kind, model, count, amount }) => ({ what: kind, model, count, amount })),
    balance('closing_balance', closing),
  ]
}

function keyRows({ keys }: Statement): readonly Row[] {
  return keys.map(({ key, requests, searches, inference, search, amount }) => ({
    key_id: key.id,
    name: key.name,
    hint: key.hint,
    requests,
    searches,
    inference,
    search,
    amount,
  }))
}
