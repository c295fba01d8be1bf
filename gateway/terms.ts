import { type Address, encodeAbiParameters, type Hex, keccak256, toHex } from 'viem'

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

const domainType = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)'

export function gatewayTerms(chainId: number, usdc: string, wallet: string): GatewayTerms {
  return {
    chainId,
    network: `eip155:${chainId}`,
    usdc: lowerCase(usdc),
    wallet: lowerCase(wallet),
    domainSeparator: separatorOf(chainId, lowerCase(wallet)),
  }
}

export function lowerCase<Text extends string>(text: Text): Hex {
  return text.toLowerCase() as Hex
}

function separatorOf(chainId: number, wallet: Address): Hex {
  const words = [
    { type: 'bytes32' },
    { type: 'bytes32' },
    { type: 'bytes32' },
    { type: 'uint256' },
    { type: 'address' },
  ]
  const hashes = [domainType, domainName, domainVersion].map((text) => keccak256(toHex(text)))
  return keccak256(encodeAbiParameters(words, [...hashes, BigInt(chainId), wallet]))
}
