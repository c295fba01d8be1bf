import { format, fromAtomic, parse, type Usdc } from '../../../src/money/usdc.ts'

// How amounts are written, everywhere in the dashboard. Never through a float. Three rules:
//
// 1. What one request was quoted, held or charged has six decimals: `$0.001873` (formatCharge).
// 2. Every other amount (balances, held money, sums, limits) is written by its size, so that an amount above zero is never shown
//    as `$0.00`: two decimals from a dollar on, four below a dollar, six below a cent, without trailing zeros beyond the cents
//    (formatAmount). It is cut, never rounded up: what is shown can be spent. The exact value is in the title.
// 3. Where money is about to move, and in titles and copies, every decimal is written with the unit: `12.345678 USDC`
//    (formatExact).

/** Millionths of an atomic unit: the precision of a line of a charge before the sum is rounded up. */
export type Millionths = bigint

const dollar = 1_000_000n
const cent = 10_000n

/** A balance, a sum, a limit: as many decimals as its size needs. */
export function formatAmount(amount: bigint): string {
  const size = amount < 0n ? -amount : amount
  if (size === 0n || size >= dollar) return dollars(amount, 2)
  return dollars(amount, size >= cent ? 4 : 6).replace(/(\.\d\d\d*?)0+$/, '$1')
}

/** The cost of one request: always six decimals. */
export function formatCharge(amount: bigint): string {
  return dollars(amount, 6)
}

/** An amount beside an axis: no more decimals than it needs. */
export function formatAxis(amount: bigint): string {
  return dollars(amount, 6).replace(/0{1,4}$/, '')
}

/** All decimals, with the unit: for titles, copies and confirmations. */
export function formatExact(amount: bigint): string {
  return `${digitsOf(amount, 6, 6)} USDC`
}

/** A line of a charge before rounding: six decimals, and more where the line has them. */
export function formatMillionths(amount: Millionths): string {
  const whole = amount / 1_000_000n
  const rest = (amount < 0n ? -amount : amount) % 1_000_000n
  const finer = rest.toString().padStart(6, '0').replace(/0+$/, '')
  return rest === 0n ? formatCharge(whole) : `${amount < 0n && whole === 0n ? minus : ''}${formatCharge(whole)}${finer}`
}

/** A price per million tokens, as the list has it: `$1.00`. */
export function formatPrice(text: string): string {
  const [whole = '0', fraction = ''] = text.split('.')
  return `$${group(whole)}.${fraction.padEnd(2, '0')}`
}

export function formatCount(count: number | bigint): string {
  return group(count.toString())
}

const compact = new Intl.NumberFormat('en-GB', { notation: 'compact', maximumFractionDigits: 1 })

/** A count where there is little room: `12.3k`. */
export function formatCompact(count: number): string {
  return compact.format(count)
}

/** A share of one, in percent. */
export function formatPercent(share: number): string {
  return `${Math.round(share * 1000) / 10} %`
}

export function atomic(text: string | null | undefined): Usdc {
  return fromAtomic(BigInt(text ?? '0'))
}

const minus = '−'

function dollars(amount: bigint, decimals: number): string {
  const text = digitsOf(amount < 0n ? -amount : amount, decimals, decimals)
  return amount < 0n ? `${minus}$${text}` : `$${text}`
}

function digitsOf(amount: bigint, decimalsMin: number, decimalsMax: number): string {
  const size = amount < 0n ? -amount : amount
  const digits = size.toString().padStart(7, '0')
  const fraction = digits.slice(-6).slice(0, decimalsMax).padEnd(decimalsMin, '0')
  return `${amount < 0n ? minus : ''}${group(digits.slice(0, -6))}.${fraction}`
}

function group(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, ',')
}

/** Whether this is an amount of USDC above zero that the token can have, as people type it. */
export function isAmount(text: string): boolean {
  return /^\d{1,12}(\.\d{1,6})?$/.test(text) && /[1-9]/.test(text)
}

export const amountError = 'Enter an amount above 0 USDC with at most six decimals, such as 2.50.'

/** A price of one token in USDC, such as `0.000005`, in atomic units per million tokens. */
export function perMillion(perToken: string): bigint {
  const [whole = '0', fraction = ''] = perToken.split('.')
  return parse(whole) * 1_000_000n + BigInt(fraction.padEnd(12, '0').slice(0, 12) || '0')
}

/** A price of one token as people compare it, per million tokens: `$5.00`. */
export function formatPerMillion(perToken: string): string {
  const digits = perMillion(perToken).toString().padStart(7, '0')
  return formatPrice(`${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, '')}`)
}

/** A price of one token as the ledger writes it, in USDC per million tokens: `5.000000`. */
export function usdcPerMillion(perToken: string): string {
  return format(fromAtomic(perMillion(perToken)))
}
