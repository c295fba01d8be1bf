/** An amount of USDC in atomic units (6 decimals). Branded, so that a token count or a price cannot pass for money. */
export type Usdc = bigint & { readonly __brand: 'Usdc' }

const unitsPerUsdc = 1_000_000n

export const zero = 0n as Usdc

export function fromAtomic(units: bigint): Usdc {
  return units as Usdc
}

/** Reads a decimal amount such as `1.25`. At most six decimals: a finer amount does not exist on the token. */
export function parse(text: string): Usdc {
  const match = /^(-?)(\d{1,12})(?:\.(\d{1,6}))?$/.exec(text)
  if (match === null) throw new InvalidAmountError(text)
  const [, sign, whole, fraction = ''] = match
  const units = BigInt(whole!) * unitsPerUsdc + BigInt(fraction.padEnd(6, '0'))
  return fromAtomic(sign === '-' ? -units : units)
}

/** The human twin of an amount: no trailing zeros, never through a float. */
export function format(amount: bigint): string {
  const digits = (amount < 0n ? -amount : amount).toString().padStart(7, '0')
  const whole = digits.slice(0, -6)
  const fraction = digits.slice(-6).replace(/0+$/, '')
  const text = fraction === '' ? whole : `${whole}.${fraction}`
  return amount < 0n ? `-${text}` : text
}

export function min(a: Usdc, b: Usdc): Usdc {
  return a < b ? a : b
}

export function max(a: Usdc, b: Usdc): Usdc {
  return a > b ? a : b
}

/** An amount that is not a plain decimal with at most six places: a bug or an operator's typo, not a customer's error. */
export class InvalidAmountError extends Error {
  constructor(text: string) {
    super(`"${text}" is not an amount of USDC. Write a decimal with at most six places, such as 1.25.`)
    this.name = 'InvalidAmountError'
  }
}
