import { accountRef } from '../db/account-ref.ts'
import { ServiceError } from '../errors.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { Downloads } from './downloads.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

const filesMax = 4

/** One public receipt, or all receipts of the account as a file. */
export function routeReceipts(router: ApiRouter, { chainServices, answering }: ApiServices): void {
  const downloads = new Downloads({ filesMax, blockedMsMax: answering.blockedMsMax })

  router.at(fundsContracts.getReceipt).answer(async ({ parameters }) => {
    const receipt = await chainServices.findReceipt?.(parameters.id)
    if (receipt === undefined) throw new NotFoundError()
    return { object: 'receipt', id: parameters.id, ...receipt }
  })

  router.at(fundsContracts.exportReceipts).answer(async ({ owner, outgoing }) => {
    const lines = await chainServices.exportReceipts?.(accountRef(owner))
    if (lines === undefined) throw new NoReceiptsError()
    const type = 'application/x-ndjson; charset=utf-8'
    return downloads.start({ owner, outgoing }, { lines, type, name: 'penny-receipts.jsonl' })
  })
}

class NoReceiptsError extends ServiceError {
  readonly code = 'not_found'
  constructor() {
    super('This account has no receipts yet. Deposit USDC and send a request to get one.')
  }
}
