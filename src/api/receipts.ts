import { accountRef } from '../db/account-ref.ts'
import { ServiceError } from '../errors.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { writeLiabilityProof } from '../receipts/liability-proof.ts'
import { proveLiability } from '../settlement/liabilities.ts'
import type { Downloads } from './downloads.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'

/** One public receipt, all receipts of the account as a file, and the proof that its balance is part of what is owed. */
export function routeReceipts(router: ApiRouter, { chainServices, database }: ApiServices, downloads: Downloads): void {
  router.at(fundsContracts.getReceipt).answer(async ({ parameters }) => {
    const receipt = await chainServices.findReceipt?.(parameters.id)
    if (receipt === undefined) throw new NotFoundError()
    return { id: parameters.id, ...receipt }
  })

  router.at(fundsContracts.exportReceipts).answer(async ({ owner, outgoing }) => {
    const text = await chainServices.exportReceipts?.(accountRef(owner))
    if (text === undefined)
      throw new ServiceError(
        'not_found',
        'This account has no receipts yet. Deposit USDC and send a request to get one.',
      )
    const type = 'application/x-ndjson; charset=utf-8'
    return downloads.start({ owner, outgoing }, { text, type, name: 'penny-receipts.jsonl' })
  })

  router
    .at(fundsContracts.getLiabilityProof)
    .answer(async ({ owner, query }) => writeLiabilityProof(await proveLiability(database, owner, query.number)))
}
