export type SignInFields = {
  /** Host and port of the site. */
  readonly domain: string
  /** With its checksum. */
  readonly address: string
  readonly statement: string
  readonly uri: string
  readonly chainId: number | string
  readonly nonce: string
  readonly issuedAt: string
  readonly expirationTime?: string
}

/** The text of EIP-4361 that a wallet shows and signs. viem's function refuses hosts that are IPv6 addresses. */
export function signInText({ domain, address, statement, uri, expirationTime, ...fields }: SignInFields): string {
  return [
    `${domain} wants you to sign in with your Ethereum account:`,
    address,
    '',
    statement,
    '',
    `URI: ${uri}`,
    'Version: 1',
    `Chain ID: ${fields.chainId}`,
    `Nonce: ${fields.nonce}`,
    `Issued At: ${fields.issuedAt}`,
    ...(expirationTime === undefined ? [] : [`Expiration Time: ${expirationTime}`]),
  ].join('\n')
}
