import { type Address, domainSeparator, type Hex } from 'viem'

/** What this gateway serves: one contract, one token, one chain. Addresses are lower case. */
export type GatewayTerms = {
  readonly chainId: number
  readonly network: `eip155:${number}`
  readonly usdc: Address
  readonly wallet: Address
  /** Hash of the EIP-712 domain that payers sign under, computed once. */
  readonly domainSeparator: Hex
}

/** Circle's name and version of that domain, so that the same signer works with both gateways. */
export const domainName = 'GatewayWalletBatched'
export const domainVersion = '1'
export const scheme = 'exact'

export function gatewayTerms(chainId: number, usdc: string, wallet: string): GatewayTerms {
  return {
    chainId,
    network: `eip155:${chainId}`,
    usdc: lowerCase(usdc),
    wallet: lowerCase(wallet),
    domainSeparator: domainSeparator({
      domain: { name: domainName, version: domainVersion, chainId, verifyingContract: lowerCase(wallet) },
    }),
  }
}

export function lowerCase<Text extends string>(text: Text): Hex {
  return text.toLowerCase() as Hex
}
