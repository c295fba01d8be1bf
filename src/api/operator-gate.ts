import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import type { Visitor } from '../http/visitor.ts'
import { accountNamed } from '../ledger/named-account.ts'
import type { Contract } from '../openapi/contract.ts'
import { accountHeader, type Caller, type GateOfRoutes } from './gate.ts'

/**
 * In front of the routes on the control port, which only the owner of the data folder can call: commands of the operator act for the
 * account that a header names. They may do what a management key with every scope may, without its rates.
 */
export class OperatorGate implements GateOfRoutes {
  readonly #database: Database

  constructor({ database }: { readonly database: Database }) {
    this.#database = database
  }

  async admit({ access, scope }: Contract, visitor: Visitor): Promise<Caller> {
    const command = { visitor, session: undefined, managementKey: undefined, keysMadeBy: undefined, asOperator: true }
    if (access === 'public') return { ...command, owner: undefined }
    if (scope === undefined)
      throw new ServiceError(
        'scope_required',
        access === 'key'
          ? 'This needs an API key: use penny login, or --key. Nothing was changed.'
          : 'This is for people only. penny login-link ACCOUNT prints a link that signs in. Nothing was changed.',
      )
    const named = visitor.header(accountHeader)
    const { partition, id } = await accountNamed(this.#database, named && decodeURIComponent(named))
    return { ...command, owner: { partition, accountId: id } }
  }

  async readmit(_contract: Contract, caller: Caller): Promise<Caller> {
    return caller
  }

  countAnswer(): void {}
}
