import { cost, type Line as PricedLine } from '../money/price.ts'
import { parse } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { requestContracts } from '../openapi/contracts/requests.ts'
import { findClient } from './client.ts'
import type { Command } from './command.ts'
import { readRequestId } from './read-options.ts'

type RenderedRequest = AnswerOf<typeof requestContracts.getRequest>

export const requestsCommand: Command = {
  usage: [
    ['penny requests get req_…', 'Show the request as GET /api/requests/{id} returns it'],
    ['--explain', 'Show quote, hold and charge line by line; also: penny requests explain req_…'],
  ],
  options: { explain: { type: 'boolean' } },
  wordsMax: 2,
  async run(invocation) {
    const { words, options, output } = invocation
    const id = readRequestId(words[0] === 'get' ? words[1] : undefined, 'penny requests get req_…')
    // The operator finds the account by the request.
    const request = await findClient(invocation, id).call(requestContracts.getRequest, { parameters: { id } })
    output.write(
      output.json || options.explain !== true ? `${JSON.stringify(request, null, 2)}\n` : `${explain(request)}\n`,
    )
    return 0
  },
}

/** Explains a request's money, as a bill. */
export function explain(request: RenderedRequest): string {
  const { id, status, model, created_at: createdAt, latency, error, usage, cost } = request
  const lines = [
    `${id}  ${status}${error === null ? '' : ` (${error.code})`}  ${model ?? ''}`,
    `${createdAt}${latency.total_ms === null ? '' : `, ${latency.total_ms} ms`}`,
    '',
    amountLine('Quote: the most it could cost without web searches', request.quote),
    ...(request.extended_atomic === '0' ? [] : [amountLine('Added to the hold for web searches', request.extended)]),
    amountLine('  held from credit', request.from_credit),
    amountLine('  held from the gateway balance', request.authorized),
    '',
    ...cost.lines.map(costLine),
    ...(cost.lines.length === 0 ? ['Nothing was charged.'] : ['', roundingLine(request)]),
    amountLine('Charged', request.charged),
    ...(request.excess_atomic === '0' ? [] : [amountLine('Beyond the quote, for searches', request.excess)]),
    amountLine('Released: held and not used', request.refunded),
    ...(request.given_back_atomic === '0' ? [] : [amountLine('Refunded later', request.given_back)]),
  ]
  if (usage !== null)
    lines.push('', `Token counts are from the ${usage.source === 'upstream' ? 'model' : 'service’s own tokenizer'}.`)
  lines.push(`Payment: ${paymentWords(request)}`)
  return lines.join('\n')
}

/** The on-chain payment that covers the request, and its state. */
function paymentWords({ status, settlement: { state, payment, reason, tx_hash: txHash } }: RenderedRequest): string {
  if (status === 'held') return 'none yet, the request is open'
  if (state === 'none') return 'none, nothing was charged'
  if (payment === null) return 'none yet, the charge waits for the next payment'
  const others = payment.entries - 1
  const together = others === 0 ? '' : `, together with ${others} other ${others === 1 ? 'entry' : 'entries'}`
  const why = reason === null ? '' : ` (${reason})`
  return `number ${payment.number} over ${payment.value} USDC${together}: ${state}${why}${txHash === null ? '' : `, ${txHash}`}`
}

type Line = RenderedRequest['cost']['lines'][number]

function costLine(line: Line): string {
  const price = line.per_million === undefined ? `${line.per_call} a call` : `${line.per_million} a million`
  const failed = line.status === 'failed' ? ' (failed)' : ''
  const name = `${line.item.replace('_', ' ')}${failed}`
  return `${name.padEnd(22)} ${String(line.units).padStart(8)} × ${price.padEnd(18)} ${millionths(costInMillionths(line)).padStart(16)}`
}

/** Only the sum is rounded, up to the next atomic unit, and never above what was held. */
function roundingLine({
  cost: { lines },
  charged_atomic: charged,
  held_atomic: quote,
  extended_atomic: extended,
}: RenderedRequest): string {
  const sum = lines.reduce((total, line) => total + costInMillionths(line), 0n)
  const exact = `${'Sum, exactly'.padEnd(52)} ${millionths(sum).padStart(16)}`
  return cost(lines.map(priced)) > BigInt(charged) && BigInt(charged) === BigInt(quote) + BigInt(extended)
    ? `${exact}\nCapped at the held amount.`
    : exact
}

/** A price per call counts as a price per million calls, so that all lines have the same unit. */
function priced({ units, per_million: perMillion, per_call: perCall }: Line): PricedLine {
  return { units, perMillion: perMillion === undefined ? parse(perCall ?? '0') * 1_000_000n : parse(perMillion) }
}

function costInMillionths(line: Line): bigint {
  const { units, perMillion } = priced(line)
  return BigInt(units) * perMillion
}

/** Millionths of an atomic unit as USDC: twelve decimals, without trailing zeros. */
function millionths(amount: bigint): string {
  const digits = amount.toString().padStart(13, '0')
  return `${digits.slice(0, -12)}.${digits.slice(-12)}`.replace(/\.?0+$/, '') || '0'
}

function amountLine(name: string, amount: string): string {
  return `${name.padEnd(52)} ${amount.padStart(16)}`
}
