// Addresses, as far as a form must know them. The service checks them again, and it alone decides.

type Known = {
  readonly usdcAddress: string | null
  readonly depositAddress: string | null
  readonly ownerAddress: string | null
}

/** Why an address cannot be withdrawn to; undefined if the address looks valid. */
export function addressProblem(address: string, known: Known): string | undefined {
  if (!/^0x[0-9a-fA-F]{40}$/.test(address)) return 'Enter an address: 0x followed by 40 hexadecimal digits.'
  const same = (other: string | null) => other !== null && other.toLowerCase() === address.toLowerCase()
  if (/^0x0{40}$/.test(address)) return 'This is the zero address. Money sent there is lost.'
  if (same(known.usdcAddress)) return 'This is the USDC token contract. Money sent there is lost.'
  if (same(known.depositAddress)) return 'This is your own deposit address. The money would come straight back.'
  if (known.ownerAddress !== null && !same(known.ownerAddress))
    return 'Withdrawals can only go to your owner address. Change it in Settings.'
  return undefined
}

/** In groups of four, so that two addresses can be compared by eye. */
export function groupAddress(address: string): readonly string[] {
  return [address.slice(0, 2), ...(address.slice(2).match(/.{1,4}/g) ?? [])]
}
