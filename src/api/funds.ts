import { type AccountRef, accountRef } from '../db/account-ref.ts'
import { derivedId } from '../db/derived-id.ts'
import { isUuid } from '../db/uuid.ts'
import { ServiceError } from '../errors.ts'
import { checkSignInIsSafe } from '../http/origin.ts'
import { requireEstablished } from '../identity/established.ts'
import { type Account, findAccount } from '../ledger/accounts.ts'
import { listGivenBack } from '../ledger/adjustments.ts'
import { readBalance } from '../ledger/balance.ts'
import { listDeposits } from '../ledger/deposits.ts'
import { requestRefund, transferGas } from '../ledger/refunds.ts'
import type { TransferCursor, TransferPage } from '../ledger/transfer-page.ts'
import { findWithdrawal, listWithdrawals, readWithdrawalTime, WalletAccountError } from '../ledger/withdrawals.ts'
import { parse, type Usdc } from '../money/usdc.ts'
import { fundsContracts } from '../openapi/contracts/funds.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { writeSnapshot } from '../receipts/liability-proof.ts'
import { findPublishedSnapshot } from '../settlement/liabilities.ts'
import { parseAddress, zeroAddress } from '../signer/address.ts'
import type { ChainFunds } from './chain-services.ts'
import { confirm, createChallenge, ownerStatement } from './confirmation.ts'
import type { DepositAddresses } from './deposit-addresses.ts'
import { requireRecentSignIn } from './gate.ts'
import { logAccountEvent } from './log-account-event.ts'
import { renderAdjustment, renderBalance, renderDeposit, renderWithdrawal } from './render-funds.ts'
import { renderAccount } from './render-session.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'

/** Balance, deposits, withdrawals and refunds. */
export function routeFunds(router: ApiRouter, services: ApiServices, addresses: DepositAddresses): void {
  const { database, chainServices, withdrawalMin } = services

  router
    .at(fundsContracts.getBalance)
    .answer(async ({ owner }) => renderBalance(await readBalance(database, owner), services))

  router.at(fundsContracts.listDeposits).answer(async ({ owner, query, visitor }) => {
    const page = await pageOf(query, (below) => listDeposits(database, owner, below), isDepositId)
    return {
      object: 'list',
      data: page.rows.map(renderDeposit),
      has_more: page.next !== null,
      next_cursor: page.next,
      deposit_address: await addresses.findOrCreate(owner, visitor),
    }
  })

  router.at(fundsContracts.listWithdrawals).answer(async ({ owner, query }) => {
    const page = await pageOf(query, (below) => listWithdrawals(database, owner, below))
    const { medianMs, count } = await readWithdrawalTime(database)
    return {
      object: 'list',
      data: page.rows.map(renderWithdrawal),
      has_more: page.next !== null,
      next_cursor: page.next,
      median_ms: medianMs ?? null,
      median_of: count,
    }
  })

  router.at(fundsContracts.listAdjustments).answer(async ({ owner, query }) => {
    const page = await pageOf(query, (below) => listGivenBack(database, owner, below))
    return {
      object: 'list',
      data: page.rows.map(renderAdjustment),
      has_more: page.next !== null,
      next_cursor: page.next,
    }
  })

  router.at(fundsContracts.createWithdrawal).answer(async (call) => {
    const { owner, session, body, headers } = call
    requireRecentSignIn(session)
    const funds = wired(chainServices.funds)
    const amount = readAmount(body.amount)
    const id = withdrawalId(owner, headers['idempotency-key'])
    await checkRecipient(services, funds, owner, body.recipient)
    const facts = { withdrawal_id: id, amount: amount.toString() }
    await funds.requestWithdrawal({ ...accountRef(owner), id, amount }, (connection) =>
      logAccountEvent({ ...services, database: connection }, 'withdrawal_requested', call, facts),
    )
    return renderWithdrawal((await findWithdrawal(database, owner.partition, owner.accountId, id))!)
  })

  router.at(fundsContracts.createWalletRefund).answer(async (call) => {
    const { owner, session, body, headers } = call
    requireRecentSignIn(session)
    if ((await accountOf(services, owner)).wallet === undefined)
      throw new ServiceError(
        'invalid_value',
        'Only the credit of a wallet account, which pays over x402, is paid back. Withdraw with POST /api/withdrawals.',
      )
    const amount = body.amount === undefined ? undefined : readAmount(body.amount)
    const id = withdrawalId(owner, headers['idempotency-key'])
    const refund = { ...accountRef(owner), id, amount, min: withdrawalMin, transferGas }
    await requestRefund(database, refund, (connection, refunded) =>
      logAccountEvent({ ...services, database: connection }, 'withdrawal_requested', call, {
        withdrawal_id: id,
        amount: refunded.toString(),
      }),
    )
    return renderWithdrawal((await findWithdrawal(database, owner.partition, owner.accountId, id))!)
  })

  router.at(fundsContracts.setOwner).answer(async (call) => {
    const { owner, session, body } = call
    requireRecentSignIn(session)
    const funds = wired(chainServices.funds)
    await refuseWalletAccount(services, owner)
    const address = await checkDestination(funds, owner, body.address, 'address')
    const isConfirmed = body.proof !== undefined
    if (body.proof !== undefined) {
      const credential = await confirm(services, ownerStatement(address), body.proof)
      await requireEstablished(database, session, credential, funds.ownerCooldownMs)
    }
    await funds.registerOwner({ ...accountRef(owner), address, isConfirmed }, (connection) =>
      logAccountEvent({ ...services, database: connection }, 'owner_changed', call, { address }),
    )
    return renderAccount(services, owner, session)
  })

  router.at(fundsContracts.createOwnerChallenge).answer(async ({ owner, session, visitor, body }) => {
    checkSignInIsSafe(services.site, visitor)
    const funds = wired(chainServices.funds)
    await refuseWalletAccount(services, owner)
    const address = await checkDestination(funds, owner, body.address, 'address')
    const { personId } = session
    return createChallenge(services, { personId, statement: ownerStatement(address), wallet: body.wallet })
  })

  router.at(fundsContracts.getSolvency).answer(async () => {
    const [report, snapshot] = await Promise.all([chainServices.solvency?.(), findPublishedSnapshot(database)])
    const { ok, ...details } = report ?? { ok: null }
    const liabilities = snapshot && writeSnapshot(snapshot)
    // Before the first check `ok` is false. `checked_at` tells this apart from a shortfall.
    return { ok: ok ?? false, checked_at: null, block: null, ...details, liabilities }
  })
}

type PageQuery = { readonly cursor?: string | undefined; readonly limit: number }
type Transfer = { readonly createdAt: Date; readonly id: string }

/** `isId` recognizes the ids of the list: a cursor with another one was not ours, and the database would fail on it. */
export async function pageOf<Row extends Transfer>(
  { cursor, limit }: PageQuery,
  list: (page: TransferPage) => Promise<readonly Row[]>,
  isId: (text: string) => boolean = isUuid,
): Promise<{ readonly rows: readonly Row[]; readonly next: string | null }> {
  const rows = await list({ below: cursor === undefined ? undefined : readCursor(cursor, isId), limit: limit + 1 })
  const shown = rows.slice(0, limit)
  const last = shown.at(-1)
  return { rows: shown, next: rows.length > limit ? `${last!.createdAt.toISOString()}_${last!.id}` : null }
}

/** A transfer on the chain is named by its block and log index, other deposits by a UUID. */
function isDepositId(text: string): boolean {
  return isUuid(text) || /^\d{1,19}-\d{1,10}$/.test(text)
}

function readCursor(cursor: string, isId: (text: string) => boolean): TransferCursor {
  const [, instant, id] = /^(\d{4}-\d\d-\d\dT[\d:.]+Z)_([0-9a-f-]{1,40})$/.exec(cursor) ?? []
  const at = new Date(instant ?? Number.NaN)
  if (Number.isNaN(at.getTime()) || id === undefined || !isId(id)) {
    throw unusable('cursor', 'it must be the next_cursor of an earlier page')
  }
  return { at, id }
}

function wired(funds: ChainFunds | undefined): ChainFunds {
  if (funds === undefined)
    throw new ServiceError(
      'settlement_delayed',
      'Money cannot be moved at the moment. Nothing was changed. Try again later.',
      {
        retryAfterMs: 30_000,
      },
    )
  return funds
}

function readAmount(text: string): Usdc {
  const amount = parse(text)
  if (amount > 0n) return amount
  throw unusable('amount', 'it must be above 0')
}

/** Derives the id from account and idempotency key, so that submitting the form again is the same withdrawal. */
function withdrawalId({ accountId }: AccountRef, idempotencyKey: string): string {
  return derivedId(`penny withdrawal ${accountId} ${idempotencyKey}`)
}

async function accountOf({ database }: ApiServices, { partition, accountId }: AccountRef): Promise<Account> {
  return (await findAccount(database, partition, accountId))!
}

/** The money of a wallet account can only go back to its wallet. */
async function refuseWalletAccount(services: ApiServices, owner: AccountRef): Promise<void> {
  if ((await accountOf(services, owner)).wallet !== undefined) throw new WalletAccountError()
}

/** Withdrawals go to the registered owner only. Reports an unusable address first, with a more helpful error. */
async function checkRecipient(
  services: ApiServices,
  funds: ChainFunds,
  owner: AccountRef,
  text: string,
): Promise<void> {
  const account = await accountOf(services, owner)
  if (account.wallet !== undefined) throw new WalletAccountError()
  const recipient = await checkDestination(funds, owner, text, 'recipient')
  if (account.ownerAddress === undefined) {
    throw unusable('recipient', 'the account has no owner address yet; register one first')
  }
  if (account.ownerAddress !== recipient) {
    throw unusable('recipient', 'withdrawals go to the registered owner address only')
  }
  if (!account.isOwnerUsable) {
    const from = account.ownerUsableFrom?.toISOString() ?? 'later'
    throw unusable('recipient', `the owner address was changed and takes effect at ${from}`)
  }
}

async function checkDestination(funds: ChainFunds, owner: AccountRef, text: string, param: string): Promise<string> {
  const address = checkWallet(funds, text, param)
  if (address === (await funds.ownAddress(owner)).toLowerCase())
    throw unusable(param, 'this is the account’s own deposit address')
  return address
}

/** Throws unless USDC that is sent to this address can be used. */
export function checkWallet({ chain }: ChainFunds, text: string, param: string): string {
  const address = parseAddress(text)
  const refused = (problem: string) => unusable(param, problem)
  if (address === undefined) throw refused('its checksum is wrong, so it has a typo')
  if (address === zeroAddress) throw refused('money sent to the zero address is lost')
  if (address === chain.usdcAddress.toLowerCase()) throw refused('this is the USDC contract itself')
  if (address === chain.gatewayAddress.toLowerCase()) throw refused('this is the gateway contract')
  return address
}
