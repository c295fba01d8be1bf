import type { Connection } from '../db/database.ts'
import { OperatorError } from '../errors.ts'
import { openPaymentStates, openTransferStates } from '../ledger/states.ts'
import type { Address } from '../signer/address.ts'
import { OtherMasterKeyError } from '../signer/master-key.ts'
import type { SigningTerms } from '../signer/signing-terms.ts'

export type PublishedTerms = {
  readonly terms: SigningTerms
  /** Signs receipts. */
  readonly issuer: Address
}

/**
 * Publishes where payments go and who signs receipts, for machines without a signer. Call it under the settlement lock: only the machine
 * that settles knows the seller that it settles for. Throws when the ledger's money belongs to other terms; see `requireContracts`.
 */
export async function publishTerms(database: Connection, { terms, issuer }: PublishedTerms): Promise<void> {
  const known = await requireContracts(database, terms)
  if (known !== undefined && known.issuer !== issuer) throw new OtherMasterKeyError(issuer, known.issuer)
  await requireSeller(database, terms.seller)
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
 * Throws when the ledger's money is on another chain or in another contract. Customers would be served for test money, deposits would not
 * be seen, and the comparison would freeze the ledger. Returns the published terms.
 */
export async function requireContracts(
  database: Connection,
  { chainId, usdc, gatewayWallet }: Omit<SigningTerms, 'seller'>,
): Promise<PublishedTerms | undefined> {
  const published = await findPublishedTerms(database)
  if (published === undefined) return undefined
  const { terms } = published
  if (terms.chainId !== chainId)
    throw new OperatorError(
      `This service would settle on chain ${chainId}, but the money of this ledger is on chain ${terms.chainId}. Set CHAIN_RPC_URL to a node of chain ${terms.chainId}, or use an empty database for another chain.`,
    )
  if (terms.usdc.address !== usdc.address)
    throw new OtherContractError('USDC_ADDRESS', usdc.address, terms.usdc.address)
  if (terms.gatewayWallet !== gatewayWallet)
    throw new OtherContractError('GATEWAY_WALLET_ADDRESS', gatewayWallet, terms.gatewayWallet)
  return published
}

/**
 * Throws when another seller is set while payments are open. The gateway would refuse an account's payment that is sent again to another
 * seller, and an accepted payment of a wallet would be taken for a different one and deleted.
 */
export async function requireSeller(database: Connection, seller: Address): Promise<void> {
  const known = (await findPublishedTerms(database))?.terms.seller
  if (known === undefined || known === seller) return
  const [row] = await database.query<{ open: number }>(
    `select count(*)::int as open
       from (select partition from payments where state in ${openPaymentStates}
              union all
             select partition from transfers where state in ${openTransferStates} and kind = 'x402') p`,
  )
  if (row!.open > 0)
    throw new OperatorError(
      `The seller would be ${seller}, but payments to the seller ${known} are still open (${row!.open}). Start with the previous SELLER_ADDRESS, run penny audit --freeze and change the seller when no payment is open (docs/guides/production.md).`,
    )
}

class OtherContractError extends OperatorError {
  constructor(setting: string, here: Address, known: Address) {
    super(
      `${setting} is ${here}, but the money of this ledger is at ${known}. Set ${setting} to ${known}, or use an empty database for another contract.`,
    )
  }
}

/** For commands. */
export async function readPublishedTerms(database: Connection): Promise<PublishedTerms> {
  const published = await findPublishedTerms(database)
  if (published === undefined)
    throw new OperatorError('No settling service has run on this database. Start a machine with ROLES=web,jobs first.')
  return published
}
