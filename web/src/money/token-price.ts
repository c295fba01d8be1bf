import { format, fromAtomic, parse } from '../../../src/money/usdc.ts'
import { formatPrice } from './format.ts'

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
