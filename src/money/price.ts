import { fromAtomic, type Usdc } from './usdc.ts'

const million = 1_000_000n

/** A count of things and what a million of them cost, in atomic units. One search is a line like any other. */
export type Line = {
  readonly units: number | bigint
  /** Atomic USDC for a million units. */
  readonly perMillion: bigint
}

/** The cost of all lines, rounded up once. */
export function cost(lines: readonly Line[]): Usdc {
  // Sum before dividing: rounding every line up would overcharge by up to one unit per line.
  const millionths = lines.reduce((sum, line) => sum + BigInt(line.units) * line.perMillion, 0n)
  return fromAtomic(divideUp(millionths, million))
}

/** How many units an amount buys at a price; the remainder buys nothing. */
export function unitsFor(amount: Usdc, perMillion: bigint): bigint {
  return amount <= 0n ? 0n : (amount * million) / perMillion
}

function divideUp(numerator: bigint, denominator: bigint): bigint {
  return (numerator + denominator - 1n) / denominator
}
