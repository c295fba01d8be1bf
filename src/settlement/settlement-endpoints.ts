import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OperatorError } from '../errors.ts'
import { writePrivateFile } from '../process/private-file.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

/** Where the money is: the chain, the gateway in front of it, and the addresses of the service itself. */
export type SettlementEndpoints = {
  /** May hold a provider's key. */
  readonly rpcUrl: string
  readonly gatewayUrl: string
  /** Undefined at Circle's gateway. */
  readonly gatewayToken?: string | undefined
  readonly terms: SigningTerms
  /** Signs receipts. */
  readonly issuer: Address
  /** Pays gas. */
  readonly relayer: Address
}

const file = 'money-line.json'

/** For the commands that run beside the service. */
export function writeSettlementEndpoints(dataDir: string, line: SettlementEndpoints): void {
  writePrivateFile(join(dataDir, file), `${JSON.stringify(line, null, 2)}\n`)
}

export function readSettlementEndpoints(dataDir: string): SettlementEndpoints {
  const line = findSettlementEndpoints(dataDir)
  if (line === undefined) throw new NoSettlementEndpointsError()
  return line
}

/** Undefined where none was written. One that is there and cannot be read is not taken for none: the money is somewhere. */
export function findSettlementEndpoints(dataDir: string): SettlementEndpoints | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, file), 'utf8')) as SettlementEndpoints
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new UnreadableSettlementEndpointsError(join(dataDir, file), error)
  }
}

class NoSettlementEndpointsError extends OperatorError {
  constructor() {
    super('No settling service has run on this data folder. Start the service first, or set DATA_DIR to its folder.')
  }
}

class UnreadableSettlementEndpointsError extends OperatorError {
  constructor(path: string, cause: unknown) {
    super(
      `${path} cannot be read (${(cause as Error).message}). Run this command as the owner of the file; the service writes it again at its start.`,
      cause,
    )
  }
}
