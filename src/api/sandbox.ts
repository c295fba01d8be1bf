import { accountRef } from '../db/account-ref.ts'
import { findAccount } from '../ledger/accounts.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { checkWallet } from './funds.ts'
import { NotInSandboxError } from './gate.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'
import { signIn } from './sign-in.ts'

/** Controls of the sandbox. */
export function routeSandbox(router: ApiRouter, services: ApiServices): void {
  const { sandbox, funds } = services.chainServices
  router.at(fundsContracts.requestTestMoney).answer(async ({ owner, body }) => {
    if (sandbox?.faucet === undefined) throw new NotInSandboxError()
    if (body.wallet !== undefined && funds !== undefined) checkWallet(funds, body.wallet, 'wallet')
    // A wallet account has no deposit address: its wallet gets the test money.
    const wallet = body.wallet ?? (await findAccount(services.database, owner.partition, owner.accountId))?.wallet
    const { amount, txHash } = await sandbox.faucet(accountRef(owner), wallet)
    return { object: 'faucet', ...moneyFields({ amount }), tx_hash: txHash ?? null }
  })
  router.at(fundsContracts.mineBlocks).answer(async ({ body }) => {
    if (sandbox?.mine === undefined) throw new NotInSandboxError()
    return { object: 'sandbox', block: (await sandbox.mine(body.blocks)).block.toString() }
  })
  router.at(fundsContracts.failNextCall).answer(async () => {
    if (sandbox?.failNext === undefined) throw new NotInSandboxError()
    await sandbox.failNext()
    return { object: 'sandbox' }
  })
  router.at(fundsContracts.slowModel).answer(async ({ body }) => {
    if (sandbox?.slowNext === undefined) throw new NotInSandboxError()
    await sandbox.slowNext(body.milliseconds)
    return { object: 'sandbox' }
  })
  router.at(fundsContracts.resetSandbox).answer(async (call) => {
    if (sandbox?.beginAgain === undefined) throw new NotInSandboxError()
    const begun = await sandbox.beginAgain(accountRef(call.owner))
    return signIn(services, call, { personId: call.session.personId, account: begun }, call.session.method)
  })
}
