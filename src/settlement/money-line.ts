import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OperatorError } from '../errors.ts'
import { writePrivateFile } from '../private-file.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

/** Where the money is: the chain, the gateway in front of it, and the addresses of the service itself. */
export type MoneyLine = {
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
export function writeMoneyLine(dataDir: string, line: MoneyLine): void {
  writePrivateFile(join(dataDir, file), `${JSON.stringify(line, null, 2)}\n`)
}

export function readMoneyLine(dataDir: string): MoneyLine {
  const line = findMoneyLine(dataDir)
  if (line === undefined) throw new NoMoneyLineError()
  return line
}

/** Undefined where none was written. One that is there and cannot be read is not taken for none: the money is somewhere. */
export function findMoneyLine(dataDir: string): MoneyLine | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, file), 'utf8')) as MoneyLine
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new UnreadableMoneyLineError(join(dataDir, file), error)
  }
}

class NoMoneyLineError extends OperatorError {
  constructor() {
    super('No service that settles has run on this data folder: start it first, or set DATA_DIR to its folder.')
  }
}

class UnreadableMoneyLineError extends OperatorError {
  constructor(path: string, cause: unknown) {
    super(
      `${path} cannot be read (${(cause as Error).message}): run this as its owner; a start of the service writes it anew.`,
      cause,
    )
  }
}
