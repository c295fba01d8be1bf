import { fromAtomic, type Usdc } from '../../../src/money/usdc.ts'

// How amounts are written. Never through a float: what is shown is what the ledger holds, cut where it says so.

/** Millionths of an atomic unit: what a line of a charge is made of before the sum is rounded up. */
export type Millionths = bigint

/** A balance: two decimals, cut and never rounded up, so that what is shown can be spent. */
export function formatBalance(amount: bigint): string {
  return dollars(amount, 2)
}

/** What one request cost: always six decimals. */
export function formatCharge(amount: bigint): string {
  return dollars(amount, 6)
}

/** A sum over many requests: as many decimals as its size makes readable, the exact value is in its title. */
export function formatSum(amount: bigint): string {
  const size = amount < 0n ? -amount : amount
  if (size === 0n || size >= 10_000_000n) return dollars(amount, 2)
  return dollars(amount, size >= 100_000n ? 4 : 6)
}

/** An amount beside an axis: no more decimals than it needs. */
export function formatAxis(amount: bigint): string {
  return dollars(amount, 6).replace(/0{1,4}$/, '')
}

/** Every decimal there is, with the unit: for titles, copies and confirmations. */
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

/** A share of a whole, for bars and rates: `12 %`, `0.4 %`. */
export function formatPercent(part: number, whole: number): string {
  if (whole === 0) return '0 %'
  const tenths = Math.round((part / whole) * 1000)
  return tenths >= 100 || tenths % 10 === 0
    ? `${Math.round(tenths / 10)} %`
    : `${Math.floor(tenths / 10)}.${tenths % 10} %`
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
