import type { AccountRef } from '../../account-ref.ts'
import type { Database } from '../../db/database.ts'
import { ServiceError } from '../../errors.ts'
import { parseRequestId } from '../../ledger/request-id.ts'
import { findRequest } from '../../ledger/requests.ts'
import { type RenderedRequest, renderRequest } from './render-request.ts'

/** `GET /api/requests/{id}`: the ledger row, for the account that owns it. */
export async function getRequest(database: Database, owner: AccountRef, idText: string): Promise<RenderedRequest> {
  const id = parseRequestId(idText)
  const row = id === undefined ? undefined : await findRequest(database, owner.partition, owner.accountId, id)
  if (row === undefined) throw new RequestNotFoundError(idText)
  return renderRequest(row)
}

export class RequestNotFoundError extends ServiceError {
  readonly code = 'request_not_found'
  constructor(id: string) {
    super(
      `No request ${id.slice(0, 100)} belongs to this account. The id is in the x-router-request-id header of the answer.`,
    )
  }
}
