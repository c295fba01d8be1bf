import type { Contract } from '../openapi/contract.ts'
import { contracts } from '../openapi/contracts/all.ts'
import { accountOption, accountUsage, findClient } from './client.ts'
import { type Command, CommandError, type CommandUsage } from './command.ts'
import { fieldsOf, type InputField, namingOptions, readField } from './fields.ts'

/** What a key or the operator may call. The rest needs a person with a session. */
const callable = contracts.filter(
  ({ path, access, scope, method }) =>
    path.startsWith('/api/') &&
    (scope !== undefined ||
      access === 'key' ||
      access === 'key or session' ||
      (access === 'public' && method === 'GET' && path !== '/api/session')),
)

export const apiCommand: Command = {
  usage: [
    ['penny api', 'List the operations of the HTTP API'],
    ['penny api OPERATION', 'Call one, and print its answer: penny api listDeposits --limit 5'],
    [
      '--FIELD VALUE',
      'A field of its input; penny api OPERATION --help lists them. Lists are separated by commas, "none" is null',
    ],
    ...accountUsage,
  ],
  options: accountOption,
  wordsMax: 1,
  optionsOf: (operation) => ({
    ...accountOption,
    ...Object.fromEntries(partsOf(find(operation)).map(({ option }) => [option, { type: 'string' }])),
  }),
  usageOf: (operation) => usageOf(find(operation)),
  async run(invocation) {
    const { options, output } = invocation
    const [operation] = invocation.words
    if (operation === undefined) {
      const rows = callable.map(({ operation: name, summary }) => ({ operation: name, summary }))
      if (output.json) output.write(`${JSON.stringify(rows, null, 2)}\n`)
      else for (const { operation: name, summary } of rows) output.write(`  ${name.padEnd(22)} ${summary}\n`)
      return 0
    }
    const contract = find(operation)
    if (contract === undefined)
      throw new CommandError(`There is no operation "${operation}". penny api lists all of them.`, 2)
    const input: Record<Part['place'], Record<string, unknown>> = { parameters: {}, query: {}, body: {} }
    const fieldOf: Record<string, string> = {}
    for (const { option, name, place, field, isRequired } of partsOf(contract)) {
      fieldOf[option] = name
      const given = options[option]
      if (typeof given === 'string') input[place][name] = readField(option, field, given)
      else if (isRequired)
        throw new CommandError(`${operation} needs --${option}. See penny api ${operation} --help.`, 2)
    }
    const answer = findClient(invocation).open(contract, {
      parameters: input.parameters as Record<string, string>,
      query: input.query as Record<string, string>,
      ...(contract.body !== undefined && { body: input.body }),
    })
    const text = await (await namingOptions(fieldOf, answer)).text()
    output.write(text === '' || text.endsWith('\n') ? text : `${JSON.stringify(JSON.parse(text), null, 2)}\n`)
    return 0
  },
}

function find(operation: string | undefined): Contract | undefined {
  return callable.find((contract) => contract.operation === operation)
}

type Part = {
  readonly option: string
  readonly name: string
  readonly place: 'parameters' | 'query' | 'body'
  readonly field: InputField
  readonly isRequired: boolean
}

function partsOf(contract: Contract | undefined): readonly Part[] {
  return (['parameters', 'query', 'body'] as const).flatMap((place) => {
    const { properties, required } = fieldsOf(contract?.[place])
    return Object.entries(properties).map(([name, field]) => ({
      ...{ option: name.replaceAll('_', '-'), name, place, field },
      // A field with a default may be left out.
      isRequired: required.includes(name) && !('default' in field),
    }))
  })
}

function usageOf(contract: Contract | undefined): CommandUsage | undefined {
  if (contract === undefined) return undefined
  const { operation, summary, method, path, scope } = contract
  const right = scope === undefined ? '' : `. With a management key it needs the scope ${scope}`
  return [
    [`penny api ${operation}`, `${summary} (${method} ${path})${right}`],
    ...partsOf(contract).map(({ option, field, isRequired }) => {
      const values = field.enum === undefined ? '' : field.enum.join('|')
      const about = [isRequired ? 'required' : '', values, field.description ?? ''].filter((part) => part !== '')
      return [`--${option}`, about.join('; ')] as const
    }),
    ...accountUsage,
  ]
}
