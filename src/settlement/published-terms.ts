import type { Connection } from '../db/database.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

/**
 * Publishes where payments go, for machines that take payments of wallets and have no signer to ask. Call it under the settlement
 * lock: only the machine that settles knows the seller that it settles for.
 */
export async function publishTerms(database: Connection, terms: SigningTerms): Promise<void> {
  await database.query(
    `insert into settlement_terms (single, terms) values (true, $1)
     on conflict (single) do update set terms = excluded.terms, changed_at = now()
       where settlement_terms.terms <> excluded.terms`,
    [JSON.stringify(terms)],
  )
}

/** Undefined before the first settlement run. */
export async function readPublishedTerms(database: Connection): Promise<SigningTerms | undefined> {
  const [row] = await database.query<{ terms: SigningTerms }>('select terms from settlement_terms')
  return row?.terms
}
