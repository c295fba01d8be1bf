/** Where a page of transfers begins: below this instant, to the millisecond, and at it below this id. */
export type TransferCursor = { readonly at: Date; readonly id: string }

export type TransferPage = { readonly below?: TransferCursor | undefined; readonly limit: number }
