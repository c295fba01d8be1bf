import { accessOptions, accessUsage, findAccess, post } from './client.ts'
import type { Command } from './command.ts'
import { questionOptions, questionUsage, readQuestion } from './question.ts'

type Quote = {
  readonly model: string
  readonly quote: string
  readonly input_tokens: number
  readonly from_credit: string
  readonly authorized: string
  readonly search_max: string
  readonly search_calls_max: number
  readonly admitted: boolean
  readonly refusal: { readonly message: string } | null
  readonly affordable_max_tokens: number
  readonly lines: readonly { readonly item: string; readonly units: number; readonly per_million: string }[]
}

export const quoteCommand: Command = {
  usage: [
    [
      'penny quote WORDS …',
      'Exit code 0 if the request would be accepted now, 1 if not. "-" reads the message from standard input',
    ],
    ...questionUsage,
    ...accessUsage,
  ],
  options: { ...questionOptions, ...accessOptions },
  wordsMax: Number.POSITIVE_INFINITY,
  async run(invocation) {
    const { output } = invocation
    const response = await post(findAccess(invocation), '/quote', await readQuestion(invocation))
    const quote = (await response.json()) as Quote
    if (output.json) {
      output.write(`${JSON.stringify(quote, null, 2)}\n`)
      return quote.admitted ? 0 : 1
    }
    for (const { item, units, per_million: price } of quote.lines)
      output.write(`${item.replace('_', ' ').padEnd(14)} ${String(units).padStart(8)}  at ${price} USDC a million\n`)
    output.write(`The input counts as ${quote.input_tokens} tokens; the quote uses an upper bound.\n`)
    output.write(`At most ${quote.quote} USDC on ${quote.model}: ${quote.from_credit} from credit, `)
    output.write(`${quote.authorized} authorized.\n`)
    if (quote.search_calls_max > 0)
      output.write(`Up to ${quote.search_max} USDC more if the model searches the web (--no-web turns that off).\n`)
    output.write(
      quote.admitted ? 'It would be accepted now.\n' : `It would be refused now: ${quote.refusal?.message}\n`,
    )
    return quote.admitted ? 0 : 1
  },
}
