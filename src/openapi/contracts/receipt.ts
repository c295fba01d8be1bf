import { z } from 'zod'
import { entryKinds, integerFields, textFields } from '../../receipts/entry.ts'
import { receiptVersion } from '../../receipts/receipt.ts'
import { address, hash, requestId } from '../shapes.ts'

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
