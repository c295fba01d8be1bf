import { keyContracts } from '../openapi/contracts/keys.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { accessOptions, accessUsage, clientWithKey, findAccess } from './client.ts'
import type { Command } from './command.ts'

export const statusCommand: Command = {
  usage: [['penny status', 'Asks the service of penny login, or the sandbox on the data folder'], ...accessUsage],
  options: accessOptions,
  async run(invocation) {
    const { output } = invocation
    const { baseUrl, apiKey } = findAccess(invocation)
    const { origin } = new URL(baseUrl)
    const client = clientWithKey(origin, apiKey)
    const from = `${new Date().toISOString().slice(0, 10)}T00:00:00Z`
    const [key, totals, problems] = await Promise.all([
      client.call(keyContracts.getOwnKey),
      client.call(requestContracts.getRequestTotals, { query: { from } }),
      findProblems(origin),
    ])
    if (output.json) output.write(`${JSON.stringify({ origin, problems, key, today: totals }, null, 2)}\n`)
    else {
      const limit = key.limit === null ? 'no limit' : `${key.remaining} of ${key.limit} USDC left`
      const rows = [
        ['Service', `${origin}: ${problems.length === 0 ? 'ready' : problems.join('; ')}`],
        ['Balance', `${key.available} USDC can be spent`],
        ['Key', `"${key.name}" ${key.hint}: ${key.held} USDC held, ${limit}`],
        ['Today', `${totals.requests} requests, ${totals.refused} refused, ${totals.charged} USDC charged`],
      ]
      output.write(rows.map(([name, text]) => `${name!.padEnd(9)}${text}\n`).join(''))
    }
    return problems.length === 0 ? 0 : 1
  },
}

async function findProblems(origin: string): Promise<readonly string[]> {
  const response = await fetch(`${origin}/readyz`)
  const { problems } = (await response.json()) as { readonly problems: Readonly<Record<string, string>> }
  return Object.entries(problems).map(([part, problem]) => `${part} ${problem}`)
}
