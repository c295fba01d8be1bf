import type { AccountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import type { Usdc } from '../money/usdc.ts'
import type { ReceiptDocument } from '../receipts/receipt.ts'

// What the dashboard needs from the chain side of the service. Optional members may be absent; their routes then answer with an error.

export type ChainFacts = {
  readonly id: number
  readonly name: string
  readonly usdcAddress: string
  /** Whether native transfers are deposits: the chain's coin is USDC, and their logs are read. */
  readonly takesCoin: boolean
  /** The gateway's contract. Never shown as a deposit address, and refused as a withdrawal address. */
  readonly gatewayAddress: string
  readonly explorerUrl: string | undefined
  /** A public node for customers' wallets. Never the operator's own, whose URL may contain a secret. */
  readonly publicRpcUrl: string | undefined
}

/** Deposits and withdrawals. */
export type ChainFunds = {
  readonly chain: ChainFacts
  /** Smaller amounts are credited when they add up to this. */
  readonly depositMin: Usdc
  /** The account's address, whether or not it is assigned. */
  ownAddress(account: AccountRef): Promise<string>
  /** Assigns the address to the account; it is watched from now on. */
  depositAddress(account: AccountRef): Promise<string>
  /**
   * Withdraws to the registered owner. Idempotent by `id`; durable when it returns. Refusals are `ServiceError`s. `alongside` runs in the
   * transaction that stores the withdrawal.
   */
  requestWithdrawal(
    withdrawal: AccountRef & { readonly id: string; readonly amount: Usdc },
    alongside: (connection: Connection) => Promise<void>,
  ): Promise<void>
  /** Waiting period of an unconfirmed or changed owner address. */
  readonly ownerCooldownMs: number
  /** Durable when it returns; also updates the account's row. `isConfirmed`: a passkey or wallet has signed this address. */
  registerOwner(
    owner: AccountRef & { readonly address: string; readonly isConfirmed: boolean },
    alongside: (connection: Connection) => Promise<void>,
  ): Promise<{ readonly address: string; readonly usableFrom: Date }>
}

/** Controls of the sandbox. Absent members are not offered. */
export type SandboxControls = {
  /** The account of "Continue as local developer". */
  localAccount(): Promise<AccountRef>
  /** Sends test USDC to the account's deposit address, or to a wallet for a deposit by hand. */
  faucet?(account: AccountRef, wallet?: string): Promise<{ readonly amount: Usdc; readonly txHash: string | undefined }>
  /** Replaces this account by a new one with the same members and new test money. */
  beginAgain?(account: AccountRef): Promise<AccountRef>
  mine?(blocks: number): Promise<{ readonly block: bigint }>
  failNext?(): Promise<void>
  slowNext?(milliseconds: number): Promise<void>
}

export type ChainServices = {
  readonly environment: 'sandbox' | 'testnet' | 'live'
  readonly funds?: ChainFunds | undefined
  /** Undefined in production. */
  readonly sandbox?: SandboxControls | undefined
  /** The public receipt of a request; undefined when there is none. */
  readonly findReceipt?: ((requestId: string) => Promise<ReceiptDocument | undefined>) | undefined
  /** The receipt bundle of an account, produced while it is read; undefined while the account has none. */
  readonly exportReceipts?: ((account: AccountRef) => Promise<AsyncIterable<string> | undefined>) | undefined
  readonly solvency?: (() => Promise<{ readonly ok: boolean | null } & Record<string, unknown>>) | undefined
}

/** 0 without a chain: there is no address to wait for. */
export function ownerCooldownMs({ chainServices }: { readonly chainServices: ChainServices }): number {
  return chainServices.funds?.ownerCooldownMs ?? 0
}
