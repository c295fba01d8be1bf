import { format, type Usdc } from './usdc.ts'

export type MoneyFields<Name extends string> = { [Member in Name | `${Name}_atomic`]: string }

/** Amounts twice each: exact for programs, plain for people. */
export function moneyFields<const Name extends string>(amounts: Readonly<Record<Name, Usdc>>): MoneyFields<Name> {
  const members = Object.entries<Usdc>(amounts).flatMap(([name, amount]) => [
    [`${name}_atomic`, amount.toString()],
    [name, format(amount)],
  ])
  return Object.fromEntries(members) as MoneyFields<Name>
}
