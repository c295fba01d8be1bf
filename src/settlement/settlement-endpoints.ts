import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OperatorError } from '../errors.ts'
import { writePrivateFile } from '../process/private-file.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

/** URLs of the chain and the gateway, and the service's own addresses. */
export type SettlementEndpoints = {
  /** May contain a provider's API key. */
  readonly rpcUrl: string
  readonly gatewayUrl: string
  /** Undefined for Circle's gateway. */
  readonly gatewayToken?: string | undefined
  readonly terms: SigningTerms
  /** Signs receipts. */
  readonly issuer: Address
  /** Pays gas. */
  readonly relayer: Address
}

const file = 'settlement-endpoints.json'

/** Commands on the service's machine read this file. */
export function writeSettlementEndpoints(dataDir: string, endpoints: SettlementEndpoints): void {
  writePrivateFile(join(dataDir, file), `${JSON.stringify(endpoints, null, 2)}\n`)
}

export function readSettlementEndpoints(dataDir: string): SettlementEndpoints {
  const endpoints = findSettlementEndpoints(dataDir)
  if (endpoints === undefined)
    throw new OperatorError(
      'No settling service has run on this data folder. Start the service first, or set DATA_DIR to its folder.',
    )
  return endpoints
}

/** Undefined when the file does not exist. Throws when it cannot be read: commands must not act as if there were no settlement. */
export function findSettlementEndpoints(dataDir: string): SettlementEndpoints | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, file), 'utf8')) as SettlementEndpoints
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new OperatorError(
      `${join(dataDir, file)} cannot be read (${(error as Error).message}). Run this command as the owner of the file; the service writes it again at its start.`,
      error,
    )
  }
}
