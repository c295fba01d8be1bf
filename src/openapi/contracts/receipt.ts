import { z } from 'zod'
import { entryKinds, integerFields, textFields } from '../../receipts/entry.ts'
import { proofObject, proofVersion } from '../../receipts/liability-proof.ts'
import { receiptVersion } from '../../receipts/receipt.ts'
import { address, hash, requestId, uuid } from '../shapes.ts'

// Receipts as JSON: `src/receipts/` writes and reads them. Numbers are text.

const integer = z.string().regex(/^-?\d+$/)

const entry = {
  kind: z.enum(entryKinds),
  ...named(textFields, z.string()),
  ...named(
    integerFields.map(({ label }) => label),
    integer,
  ),
}

function named<const Name extends string, Schema extends z.ZodType>(names: readonly Name[], schema: Schema) {
  return Object.fromEntries(names.map((name) => [name, schema])) as { readonly [name in Name]: Schema }
}

const domain = z.object({ chain_id: integer, gateway_wallet: address })

const payment = {
  ...named(['number', 'first', 'last', 'value_atomic'], integer),
  ...named(['nonce', 'previous', 'root'], hash),
  signature: z.string().meta({ description: 'Of the payment with its root, in hex' }),
  batch: z
    .object({ id: z.string(), tx_hash: hash, root: hash, proof: z.array(hash) })
    .optional()
    .meta({ description: 'The batch on the chain; absent until the payment is in one' }),
}

export const receipt = z
  .object({
    object: z.literal('receipt'),
    id: requestId,
    version: z.literal(receiptVersion),
    entry: z.object({ payer: address, ...entry }).meta({ id: 'ReceiptEntry' }),
    domain,
    hash: hash.meta({ description: 'Of the entry' }),
    payment: z
      .object({ payer: address, ...payment, issuer: address, proof: z.array(hash) })
      .optional()
      .meta({ description: 'The payment that covers the entry; absent while there is none' }),
  })
  .meta({ id: 'Receipt' })

const version = z.literal(receiptVersion)

/** The lines of a bundle. */
export const receiptsLine = z
  .discriminatedUnion('object', [
    z.object({
      object: z.literal('receipts'),
      version,
      domain,
      payer: address,
      issuer: address,
      after: z
        .object({ payment: integer, entry: integer, root: hash })
        .optional()
        .meta({ description: 'The payment before the first one of this file' }),
    }),
    z.object({ object: z.literal('payment'), ...payment }),
    z.object({ object: z.literal('entry'), ...entry }),
    z.object({
      object: z.literal('end'),
      payments: integer,
      entries: integer,
      unpaid: z.object({ first: integer, last: integer, value_atomic: integer, root: hash }).optional(),
    }),
  ])
  .meta({
    id: 'ReceiptsLine',
    description:
      'The first line is the header (`receipts`). Each `payment` is followed by its entries; unpaid entries come last. A file without `end` was cut off',
  })

const about = (description: string) => integer.meta({ description })

/** What the service owes to all accounts at one instant. */
export const snapshot = z
  .object({
    number: about('The minute in which it was taken, counted from 1970'),
    time_ms: about('Milliseconds since 1970'),
    root: hash.meta({ description: 'The root of the tree over all leaves' }),
    sum_atomic: about('The sum of all leaves: what is owed, in atomic USDC'),
    leaves: about('The number of accounts that are owed something'),
    previous: hash.meta({ description: 'The EIP-712 digest of the snapshot before it; zeros for the first' }),
    block: about('The block of the comparison with the chain'),
    on_chain_atomic: about(
      'What the gateway’s contract had at that block: the balances of the accounts, and the seller’s as far as it owes accounts',
    ),
    issuer: address,
    signature: z.string().meta({ description: 'Of the issuer, EIP-712, in hex' }),
  })
  .meta({ id: 'LiabilitySnapshot' })

/** Selects a snapshot. */
export const snapshotQuery = z.object({
  number: z
    .string()
    .regex(/^\d{1,15}$/, 'must be the number of a snapshot')
    .optional()
    .meta({
      description: 'Default: the latest. All are kept for 48 hours, the first of each day for 400 days',
      examples: ['29391840'],
    }),
})

export const liabilityProof = z
  .object({
    object: z.literal(proofObject),
    version: z.literal(proofVersion),
    domain,
    snapshot,
    leaf: z
      .object({
        account: uuid,
        amount_atomic: about('What the account was owed: available, held, and withdrawals that were not paid yet'),
        salt: hash,
        place: about('Its place among the leaves, from 0'),
      })
      .nullable()
      .meta({ description: 'Null: the snapshot says that the account was owed nothing' }),
    path: z
      .array(z.object({ hash, sum_atomic: integer }))
      .meta({ description: 'Hash and sum of each sibling, from the leaf up to the root' }),
  })
  .meta({ id: 'LiabilityProof', description: 'For `penny verify`. docs/operations/liabilities.md describes the tree' })
