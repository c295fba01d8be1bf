import type { Connection } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import type { Address } from '../signer/address.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

export type PublishedTerms = {
  readonly terms: SigningTerms
  /** Signs receipts. */
  readonly issuer: Address
}

/**
 * Publishes where payments go and who signs receipts, for machines without a signer. Call it under the settlement lock: only the machine
 * that settles knows the seller that it settles for.
 */
export async function publishTerms(database: Connection, { terms, issuer }: PublishedTerms): Promise<void> {
  await database.query(
    `insert into settlement_terms (single, terms, issuer) values (true, $1, $2)
     on conflict (single) do update set terms = excluded.terms, issuer = excluded.issuer, changed_at = now()
       where (settlement_terms.terms, settlement_terms.issuer) <> (excluded.terms, excluded.issuer)`,
    [JSON.stringify(terms), issuer],
  )
}

/** Undefined before the first settlement run. */
export async function findPublishedTerms(database: Connection): Promise<PublishedTerms | undefined> {
  const [row] = await database.query<PublishedTerms>('select terms, issuer from settlement_terms')
  return row
}

/**
 * Throws when the ledger's money is on another chain. Customers would be served for test money, deposits would not be seen until the chain
 * is as long as the other one, and the comparison would freeze the ledger.
 */
export async function requireChain(database: Connection, chainId: number): Promise<void> {
  const known = (await findPublishedTerms(database))?.terms.chainId
  if (known !== undefined && known !== chainId) throw new OtherChainError(chainId, known)
}

class OtherChainError extends OperatorError {
  constructor(chainId: number, known: number) {
    super(
      `This service would settle on chain ${chainId}, but the money of this ledger is on chain ${known}. Set CHAIN_RPC_URL to a node of chain ${known}, or use an empty database for another chain.`,
    )
  }
}

/** For commands. */
export async function readPublishedTerms(database: Connection): Promise<PublishedTerms> {
  const published = await findPublishedTerms(database)
  if (published === undefined) throw new NeverSettledError()
  return published
}

class NeverSettledError extends OperatorError {
  constructor() {
    super('No settling service has run on this database. Start a machine with ROLES=web,jobs first.')
  }
}
