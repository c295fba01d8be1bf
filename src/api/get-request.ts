import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { parseRequestId } from '../ledger/request-id.ts'
import { findRequest } from '../ledger/requests.ts'
import { checkNotArchived } from '../ledger/sealed-months.ts'
import { type RenderedRequest, renderRequest } from './render-request.ts'

/** `GET /api/requests/{id}`: the ledger row, for the account that owns it. 410 for a request of an archived month, also to other accounts. */
export async function getRequest(database: Database, owner: AccountRef, idText: string): Promise<RenderedRequest> {
  const id = parseRequestId(idText)
  const row = id === undefined ? undefined : await findRequest(database, owner.partition, owner.accountId, id)
  if (row !== undefined) return renderRequest(row)
  if (id !== undefined) await checkNotArchived(database, id)
  throw new RequestNotFoundError(idText)
}

export class RequestNotFoundError extends ServiceError {
  readonly code = 'request_not_found'
  constructor(id: string) {
    super(
      `No request ${id.slice(0, 100)} belongs to this account. The id is in the x-router-request-id header of the answer.`,
    )
  }
}
