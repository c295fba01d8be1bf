import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import type { Usdc } from '../money/usdc.ts'

// What the dashboard shows and does beyond the ledger, done by whoever knows the chain. Each may be absent: then its route
// says so.

export type ChainFacts = {
  readonly id: number
  readonly name: string
  readonly usdcAddress: string
  /** The gateway's contract. Never shown as a place to send money to, and refused as one to withdraw to. */
  readonly gatewayAddress: string
  readonly explorerUrl: string | undefined
  /** A node that anybody's wallet may be told of; never the operator's own, whose address may hold a secret. */
  readonly publicRpcUrl: string | undefined
}

/** The ways of money in and out. */
export type ChainFunds = {
  readonly chain: ChainFacts
  /** What has arrived is credited when it adds up to this. */
  readonly depositMin: Usdc
  readonly withdrawalMin: Usdc
  /** The account's own address, whether or not it was given to its holder. */
  ownAddress(account: AccountRef): Promise<string>
  /** The same; assigned to the account and watched from now on. */
  depositAddress(account: AccountRef): Promise<string>
  /**
   * To the registered owner, idempotent by `id`. It is stored when this returns; refusals are thrown as `ServiceError`s. `alongside`
   * writes into the transaction that stores it.
   */
  requestWithdrawal(
    withdrawal: AccountRef & { readonly id: string; readonly amount: Usdc },
    alongside: (connection: Connection) => Promise<void>,
  ): Promise<void>
  /** How long an owner address waits that nobody has confirmed, and every changed one. */
  readonly ownerCooldownMs: number
  /** Durable when it returns; it writes the account's owner address too. `isConfirmed`: by a passkey or wallet, for this very address. */
  registerOwner(
    owner: AccountRef & { readonly address: string; readonly isConfirmed: boolean },
    alongside: (connection: Connection) => Promise<void>,
  ): Promise<{ readonly address: string; readonly usableFrom: Date }>
}

/** What only a sandbox can do. A member that is absent is not offered. */
export type SandboxControls = {
  /** The account of "Continue as local developer". */
  localAccount(): Promise<AccountRef>
  /** To the account's deposit address, or to a wallet from which somebody wants to try a deposit. */
  faucet?(account: AccountRef, wallet?: string): Promise<{ readonly amount: Usdc; readonly txHash: string | undefined }>
  /** A new account in the place of this one, signed in to by the same wallets and passkeys, with test money on its way. */
  beginAgain?(account: AccountRef): Promise<AccountRef>
  mine?(blocks: number): Promise<{ readonly block: bigint }>
  failNext?(): Promise<void>
  slow?(milliseconds: number): Promise<void>
}

export type ChainServices = {
  readonly environment: 'sandbox' | 'testnet' | 'live'
  readonly funds?: ChainFunds | undefined
  /** Undefined where money is real. */
  readonly sandbox?: SandboxControls | undefined
  /** The public receipt of a request by its id as customers see it; undefined when there is none. */
  readonly findReceipt?: ((requestId: string) => Promise<object | undefined>) | undefined
  /** All receipts of an account as the text of a bundle, for as long as it is read; undefined while the account has none. */
  readonly exportReceipts?: ((account: AccountRef) => Promise<AsyncIterable<string> | undefined>) | undefined
  readonly solvency?: (() => Promise<{ readonly ok: boolean | null } & Record<string, unknown>>) | undefined
}
