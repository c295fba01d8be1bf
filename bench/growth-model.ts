import { readFileSync } from 'node:fs'

// `node bench/growth-model.ts`: what a service of a given size needs. The ledger's speed is the committed measurement; everything else
// is an assumption, and stands here. docs/scaling.md carries the printed table, and a test keeps it fresh.

type LedgerResult = {
  readonly rows: readonly { readonly accounts: number; readonly at_once: number; readonly per_second: number }[]
}

/** Change one, run it again, and see what it moves. */
export const assumptions = {
  peakToMean: 3,
  secondsPerRequest: 8,
  tokensPerRequest: 400,
  /** Stream events that one core relays, parses and meters in a second: the target; the benches measured 9,500 to 19,000. */
  eventsPerCorePerSecond: 7_000,
  /** As measured on 2026-11-16; 123 on a slower machine. The target, 60, is missed. */
  kibPerStream: 88,
  signaturesPerCorePerSecond: 3_500,
  /** Rows of requests and their indexes. */
  bytesPerRequest: 1_000,
  /** Share of a machine's capacity that is planned for; the rest is for the loss of a neighbour. */
  fill: 0.5,
  /** Requests that share one payment; a busy account has more. */
  requestsPerPayment: 100,
  /** Our own gateway: a payment in a full batch of different payers, as measured (contracts/README.md). */
  gasPerPayment: 19_650,
  /** Arc: 30 million gas every half second, 20 gwei at least. */
  chainGasPerDay: 30_000_000 * 2 * 86_400,
  usdcPerGas: 20e-9,
} as const

/** Holds and ends in a second on one PostgreSQL primary of two cores, many accounts, as measured. */
export function measuredLedgerPerSecond(): number {
  const file = new URL('./results/ledger.json', import.meta.url)
  const { rows } = JSON.parse(readFileSync(file, 'utf8')) as LedgerResult
  return Math.min(
    ...rows.filter(({ accounts, at_once }) => accounts > 1 && at_once === 512).map((row) => row.per_second),
  )
}

export type Size = {
  readonly perDay: number
  readonly peakPerSecond: number
  readonly openStreams: number
  readonly webCores: number
  readonly streamMemoryGib: number
  readonly ledgerPrimaries: number
  readonly signerCores: number
  readonly tbPerYear: number
  /** By our own gateway. */
  readonly shareOfChain: number
  readonly gasUsdcPerDay: number
}

export function sizeOf(perDay: number, ledgerPerSecond: number): Size {
  const { fill, peakToMean, secondsPerRequest, tokensPerRequest } = assumptions
  const peakPerSecond = (perDay / 86_400) * peakToMean
  const openStreams = peakPerSecond * secondsPerRequest
  const gas = (perDay / assumptions.requestsPerPayment) * assumptions.gasPerPayment
  return {
    perDay,
    peakPerSecond,
    openStreams,
    webCores: atLeastOne((peakPerSecond * tokensPerRequest) / (assumptions.eventsPerCorePerSecond * fill)),
    streamMemoryGib: (openStreams * assumptions.kibPerStream) / 2 ** 20,
    ledgerPrimaries: atLeastOne(peakPerSecond / (ledgerPerSecond * fill)),
    signerCores: atLeastOne(
      peakPerSecond / assumptions.requestsPerPayment / (assumptions.signaturesPerCorePerSecond * fill),
    ),
    tbPerYear: (perDay * 365 * assumptions.bytesPerRequest) / 1e12,
    shareOfChain: gas / assumptions.chainGasPerDay,
    gasUsdcPerDay: gas * assumptions.usdcPerGas,
  }
}

function atLeastOne(count: number): number {
  return Math.max(1, Math.ceil(count))
}

/** The table of docs/scaling.md. */
export function growthTable(): string {
  const sizes = [3, 4, 5, 6, 7, 8, 9].map((power) => sizeOf(10 ** power, measuredLedgerPerSecond()))
  const rows = sizes.map((size) => [
    whole(size.perDay),
    short(size.peakPerSecond),
    whole(size.openStreams),
    whole(size.webCores),
    short(size.streamMemoryGib),
    whole(size.ledgerPrimaries),
    whole(size.signerCores),
    short(size.tbPerYear),
    `${short(size.shareOfChain * 100)} %`,
    short(size.gasUsdcPerDay),
  ])
  const head = [
    'requests a day',
    'peak a second',
    'open streams',
    'web cores',
    'stream memory, GiB',
    'ledger primaries',
    'signer cores',
    'TB a year',
    'of Arc’s gas',
    'gas, USDC a day',
  ]
  return [head, head.map(() => '---:'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

function whole(value: number): string {
  return Math.ceil(value).toLocaleString('en-US')
}

function short(value: number): string {
  return Number(value.toPrecision(2)).toLocaleString('en-US', { maximumFractionDigits: 5 })
}

if (process.argv[1]?.endsWith('growth-model.ts')) console.log(growthTable())
