import type { Connection, Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { registerOwnerAddress } from '../ledger/accounts.ts'
import { assignAddress, type DepositAccount, findDepositAddress } from '../ledger/deposit-addresses.ts'
import type { Transfer } from '../ledger/transfers.ts'
import { findWithdrawal, requestWithdrawal } from '../ledger/withdrawals.ts'
import { format, fromAtomic, type Usdc } from '../money/usdc.ts'
import { parseAddress } from '../signer/address.ts'
import type { Signer } from '../signer/signer.ts'
import { type RegisteredOwner, SigningRefusedError } from '../signer/signing-request.ts'
import { payOutMax } from '../signer/signing-terms.ts'

export type FundsParts = {
  readonly database: Database
  readonly signer: Pick<Signer, 'addressOf' | 'registerOwner'>
  readonly withdrawalMin: Usdc
}

export type OwnedAccount = Pick<DepositAccount, 'partition' | 'id'>

/** Deposit address, owner address and withdrawals of an account. Only records what was requested; the settlement process executes it. */
export class Funds {
  readonly #parts: FundsParts

  constructor(parts: FundsParts) {
    this.#parts = parts
  }

  /** Computes the address without assigning it: the chain is not watched for it. */
  ownAddress(account: OwnedAccount): Promise<string> {
    return this.#parts.signer.addressOf(account.id)
  }

  async depositAddress(account: OwnedAccount): Promise<string> {
    const known = await findDepositAddress(this.#parts.database, account)
    if (known !== undefined) return known
    // Stored before it is returned: transfers to an address that is not watched yet would be missed.
    const address = await this.#parts.signer.addressOf(account.id)
    return assignAddress(this.#parts.database, { ...account, address })
  }

  /**
   * Registers the address for withdrawals. The signer keeps the register, validates addresses and enforces a waiting period for changes:
   * write access to the database is not enough to redirect money. The first address of an account with money also waits unless the
   * owner has confirmed it: a stolen session must not be enough to take the money. `alongside` runs in the transaction that copies
   * the register into the database.
   */
  async registerOwner(
    account: OwnedAccount,
    text: string,
    isConfirmed: boolean,
    alongside?: (connection: Connection) => Promise<void>,
  ): Promise<RegisteredOwner> {
    const owner = parseAddress(text)
    if (owner === undefined) throw new BadOwnerAddressError(text)
    const immediate = isConfirmed || !(await hasMoney(this.#parts.database, account))
    try {
      const registered = await this.#parts.signer.registerOwner(account.id, owner, immediate)
      await this.#parts.database.transaction(async (connection) => {
        await registerOwnerAddress(connection, account, owner, new Date(registered.usableFromMs))
        await alongside?.(connection)
      })
      return registered
    } catch (error) {
      if (!(error instanceof SigningRefusedError)) throw error
      if (error.reason === 'bad_owner') throw new BadOwnerAddressError(text)
      if (error.reason === 'owner_pending' || error.reason === 'owner_too_often') {
        throw new ServiceError(
          'invalid_value',
          `The withdrawal address cannot be changed now: ${error.message}. You can go back to the previous address.`,
          {
            param: 'address',
          },
        )
      }
      throw error
    }
  }

  /**
   * Requests a withdrawal to the registered owner. Idempotent by id, even if the owner has changed in the meantime.
   */
  async withdraw(
    account: OwnedAccount,
    id: string,
    amount: Usdc,
    alongside?: (connection: Connection) => Promise<void>,
  ): Promise<Transfer> {
    if (amount <= 0n)
      throw new ServiceError('invalid_value', 'A withdrawal needs an amount above 0 USDC.', { param: 'amount' })
    const stored = await findWithdrawal(this.#parts.database, account.partition, account.id, id)
    if (stored?.amount === amount) return stored
    const [row] = await this.#parts.database.query<{
      owner_address: string | null
      from: Date
      usable: boolean | null
    }>(
      `select owner_address, owner_usable_from as from, owner_usable_from <= clock_timestamp() as usable
         from accounts where partition = $1 and id = $2`,
      [account.partition, account.id],
    )
    if (row?.owner_address == null) throw new NoOwnerAddressError()
    if (row.usable !== true)
      throw new ServiceError(
        'invalid_value',
        `The withdrawal address is new and takes effect at ${row.from.toISOString()}. Nothing was withdrawn.`,
        {
          param: 'address',
        },
      )
    if (amount > payOutMax)
      throw new ServiceError(
        'invalid_value',
        `${format(amount)} USDC cannot be withdrawn in one go: the maximum is ${format(fromAtomic(payOutMax))} USDC. Withdraw it in parts.`,
        { param: 'amount' },
      )
    const { database, withdrawalMin } = this.#parts
    const request = {
      partition: account.partition,
      accountId: account.id,
      id,
      amount,
      recipient: row.owner_address,
      min: withdrawalMin,
    }
    return requestWithdrawal(database, request, alongside)
  }
}

/** Whether anything was deposited or has arrived. */
async function hasMoney(database: Database, { partition, id }: OwnedAccount): Promise<boolean> {
  const [row] = await database.query(
    `select from accounts a where a.partition = $1 and a.id = $2
        and (a.deposited > 0 or exists (select from arrivals v where v.partition = $1 and v.account_id = $2))`,
    [partition, id],
  )
  return row !== undefined
}

export class BadOwnerAddressError extends ServiceError {
  constructor(text: string) {
    super(
      'invalid_value',
      `${text.slice(0, 60)} cannot receive withdrawals. Use your own address: 0x and 40 hex digits with a valid checksum, not zero, the token, the gateway or a deposit address.`,
      { param: 'address' },
    )
  }
}

export class NoOwnerAddressError extends ServiceError {
  constructor() {
    super('invalid_value', 'No withdrawal address is registered yet. Register one first.', { param: 'address' })
  }
}
