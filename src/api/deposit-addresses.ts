import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { RateLimitedError, TokenBuckets } from '../fairness/token-buckets.ts'
import type { Visitor } from '../http/visitor.ts'
import { findAccount } from '../ledger/accounts.ts'
import { requestDepositAddress } from '../ledger/deposit-addresses.ts'
import type { ChainFunds } from './chain-services.ts'

export type DepositAddressesOptions = {
  readonly database: Database
  readonly chainServices: { readonly funds?: Pick<ChainFunds, 'depositAddress'> | undefined }
  /** Milliseconds. */
  readonly now: () => number
}

/**
 * Assigns deposit addresses on first use. The settlement process watches every assigned address on the chain. Sign-ups are free, so
 * addresses are not assigned at sign-up, and their number is limited per network.
 */
export class DepositAddresses {
  readonly #options: DepositAddressesOptions
  readonly #ofNetwork: TokenBuckets

  constructor(options: DepositAddressesOptions) {
    this.#options = options
    this.#ofNetwork = new TokenBuckets({ burstMax: 60, perSecond: 0.1, now: options.now })
  }

  /**
   * Null for wallet accounts, which have no deposit address. Also null while the visitor's network is above its rate, and at first where
   * another machine settles: a later call succeeds.
   */
  async findOrCreate(owner: AccountRef, { network }: Pick<Visitor, 'network'>): Promise<string | null> {
    const { database, chainServices } = this.#options
    const { address, wallet } = (await findAccount(database, owner.partition, owner.accountId))!
    if (address !== undefined || wallet !== undefined) return address ?? null
    try {
      this.#ofNetwork.take(network)
    } catch (error) {
      if (error instanceof RateLimitedError) return null
      throw error
    }
    if (chainServices.funds !== undefined) return chainServices.funds.depositAddress(accountRef(owner))
    // Another machine settles: it assigns the address within a second.
    const { partition, accountId: id } = owner
    return (await requestDepositAddress(database, { partition, id })) ?? null
  }
}
