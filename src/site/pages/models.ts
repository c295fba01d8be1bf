import type { Model, PriceList } from '../../billing/price-list.ts'
import { cost } from '../../money/price.ts'
import { format, fromAtomic } from '../../money/usdc.ts'

/** Typical requests, for the table of examples: tokens in and out. */
const examples = [
  { name: 'A short question', input: 200, output: 300 },
  { name: 'A summary of ten pages', input: 6_000, output: 500 },
  { name: 'A coding agent’s turn', input: 40_000, output: 1_500 },
] as const

/** The price page of the documentation, as Markdown: the models of this installation and their prices. */
export function modelsMarkdown(prices: PriceList): string {
  const models = [...prices.models.values()]
  const amount = (atomic: bigint) => format(fromAtomic(atomic))
  const rows = models.map(
    (model) =>
      `| \`${model.id}\`${model.id === prices.defaultModel ? ' (default)' : ''} | ${amount(model.inputPerMillion)} | ${amount(model.outputPerMillion)} | ${withCommas(model.contextLength)} | ${withCommas(model.maxOutputTokens)} |`,
  )
  const costs = examples.map(
    ({ name, input, output }) =>
      `| ${name} | ${withCommas(input)} | ${withCommas(output)} | ${models.map((model) => format(costOf(model, input, output))).join(' | ')} |`,
  )
  return `# Models and prices

Prices are in USDC for a million tokens. There is no minimum, no subscription and no extra fee: a request costs its tokens, rounded
up once to a millionth of a USDC, and ${amount(prices.searchPerCall)} USDC for each web search that ran.

| model | input | output | context | longest answer |
|---|---:|---:|---:|---:|
${rows.join('\n')}

- Reasoning is billed as output tokens. Cached input is billed as input.
- Reading a page with \`web_fetch\` costs nothing beyond its tokens. A failed search costs nothing.
- The live list for programs is [\`GET /v1/models\`](/docs/api/inference#listModels). [\`POST /v1/quote\`](/docs/api/inference#createQuote) says what a
  request can cost before you send it; [how billing works](guides/billing.md) explains quote, hold and charge.

## What typical requests cost

In USDC, without web search.

| request | tokens in | tokens out | ${models.map(({ id }) => id).join(' | ')} |
|---|---:|---:|${models.map(() => '---:|').join('')}
${costs.join('\n')}
`
}

/** Not `toLocaleString`: its first call loads the rules of all languages, which slows the start of the process. */
function withCommas(count: number): string {
  return String(count).replaceAll(/\B(?=(\d{3})+$)/g, ',')
}

function costOf(model: Model, input: number, output: number) {
  return cost([
    { units: input, perMillion: model.inputPerMillion },
    { units: output, perMillion: model.outputPerMillion },
  ])
}
