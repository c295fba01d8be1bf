import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { RateLimitedError, TokenBuckets } from '../http/token-buckets.ts'
import type { Visitor } from '../http/visitor.ts'
import { findAccount } from '../ledger/accounts.ts'
import type { ChainFunds } from './chain-services.ts'

export type DepositAddressesOptions = {
  readonly database: Database
  readonly chainServices: { readonly funds?: Pick<ChainFunds, 'depositAddress'> | undefined }
  /** Milliseconds. */
  readonly now: () => number
}

/**
 * Gives accounts their deposit addresses when they are first asked for. The settlement process watches every address on the chain:
 * sign-ups are free, so neither a sign-up nor a network that asks for many accounts may make that list grow without limit.
 */
export class DepositAddresses {
  readonly #options: DepositAddressesOptions
  readonly #ofNetwork: TokenBuckets

  constructor(options: DepositAddressesOptions) {
    this.#options = options
    this.#ofNetwork = new TokenBuckets({ burstMax: 60, perSecond: 0.1, now: options.now })
  }

  /**
   * Null where there is no chain, and for a wallet account, which has none. Also while the visitor's network has asked for too many:
   * asking again later helps.
   */
  async findOrCreate(owner: AccountRef, { network }: Pick<Visitor, 'network'>): Promise<string | null> {
    const { database, chainServices } = this.#options
    const { address, wallet } = (await findAccount(database, owner.partition, owner.accountId))!
    if (address !== undefined || wallet !== undefined || chainServices.funds === undefined) return address ?? null
    try {
      this.#ofNetwork.take(network)
    } catch (error) {
      if (error instanceof RateLimitedError) return null
      throw error
    }
    return chainServices.funds.depositAddress(accountRef(owner))
  }
}
