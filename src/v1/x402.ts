import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Hono } from 'hono'
import { quoteRequest } from '../chat/admit.ts'
import { refuseUnavailable } from '../chat/tool-offer.ts'
import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { ServiceError } from '../errors.ts'
import { disconnectSignal } from '../http/disconnect.ts'
import type { HonoBindings } from '../http/hono.ts'
import { hasBody, readJsonBytes } from '../http/read-body.ts'
import { readRetryHeaders } from '../http/retry-headers.ts'
import { type Visitor, visitorOf } from '../http/visitor.ts'
import { noOptions } from '../identity/key-options.ts'
import { parseChatRequest } from '../inference/chat-request.ts'
import { parseJsonBody } from '../inference/json-body.ts'
import { readBalance } from '../ledger/balance.ts'
import { listRefunds, requestRefund, transferGas } from '../ledger/refunds.ts'
import { withdrawalStateOf } from '../ledger/states.ts'
import type { Transfer } from '../ledger/transfers.ts'
import { findWallet, type X402Wallet } from '../ledger/wallet-accounts.ts'
import { isPaymentUsed } from '../ledger/x402-payments.ts'
import { moneyFields } from '../money/money-fields.ts'
import { max, min, parse, type Usdc, zero } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { x402Contracts } from '../openapi/contracts/x402.ts'
import { refusalOf } from '../openapi/input-refusal.ts'
import { writeLiabilityProof } from '../receipts/liability-proof.ts'
import { proveLiability } from '../settlement/liabilities.ts'
import { PaidHolds, type PaidHoldsParts, type PresentedPayment } from '../x402/paid-holds.ts'
import { paymentRequired } from '../x402/payment-required.ts'
import { readPayment } from '../x402/read-payment.ts'
import { readSignIn, refuseUsedSignIn, useSignIn, type WalletSignIn } from '../x402/sign-in.ts'
import { amountToPay } from '../x402/terms.ts'
import { answerChat, type ChatCaller, type ChatRouteServices } from './create-chat-completion.ts'

export type X402Services = ChatRouteServices & {
  /** Throws when wallets cannot pay on this machine. */
  readonly x402: () => Promise<PaidHoldsParts>
  readonly lookUps: Database
  readonly ledgerPartitions: number
  readonly withdrawalMin: Usdc
}

const bodyBytesMax = 4 * 1024
const refundsMax = 10

/** `POST /x402/v1/chat/completions`: a chat completion for a wallet that pays for the request or has credit. */
export async function createPaidCompletion(
  services: X402Services,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const visitor = visitorOf(incoming, services.trustProxy)
  await answerChat(services, incoming, outgoing, async (): Promise<ChatCaller> => {
    const x402 = await services.x402()
    const { wallet, payment, signIn, limited } = await identify(services, x402, visitor)
    if (payment?.identifier !== undefined) incoming.headers['idempotency-key'] ??= payment.identifier
    const holds = new PaidHolds(x402, { wallet, payment })
    const isKnown = wallet?.isKnown === true
    const paying = wallet ?? limited
    const bearer = { ...paying, depositAddress: undefined, x402Wallet: wallet?.address, options: noOptions }
    const funding = {
      sharesOf: limited.accountId,
      options: async () => (isKnown ? services.keys.currentOptions(bearer) : noOptions),
      // Input is counted before anything is paid, to know what to ask for. Callers take turns, and refused ones are slowed down.
      admission: { holds, refuseUnpaid: async () => {} },
      // Whoever has seen a used payment can send it again: the log is for what the wallet did.
      isLogged: isKnown && payment?.isUsed !== true,
      // A used payment is public on the chain: without a secret key, anyone could read the answer that it paid for. An unknown wallet
      // that pays nothing has had no answer that a retry could get.
      isRetriable:
        payment?.isUsed === true
          ? readRetryHeaders(incoming).idempotencyKey !== undefined
          : isKnown || payment !== undefined,
      headers: () => holds.headers,
      errorFields: () => holds.errorFields,
    }
    const open = async () => {
      if (signIn !== undefined) await useSignIn(services.lookUps, signIn)
      return { bearer, funding }
    }
    return { account: accountRef(limited), limitedAs: limited.keyId, mayPay: true, open }
  })
}

/** The other paths of a wallet. */
export function routeX402(app: Hono<HonoBindings>, services: X402Services): void {
  const { lookUps, models, admission, bodyLimits, unpaid, withdrawalMin } = services
  const { createPaidQuote, getWalletBalance, getWalletLiabilityProof, createRefund } = x402Contracts

  app.post(createPaidQuote.path, async ({ env: { incoming, outgoing }, json }) =>
    duringFree({ incoming, outgoing }, async ({ wallet, limited: { accountId: account } }) => {
      const body = parseJsonBody(await readJsonBytes(incoming, bodyLimits, account))
      const chat = parseChatRequest(body, models)
      refuseUnavailable(chat, admission.web)
      const counting = { account, signal: disconnectSignal(outgoing), refuseUnpaid: async () => {} }
      const { model, quote } = await quoteRequest(admission, chat, '', counting)
      const available = wallet?.isKnown === true ? (await readBalance(lookUps, wallet)).available : zero
      const credit = min(max(zero, available), quote.amount)
      return json({
        object: 'x402.quote',
        model: model.id,
        max_tokens: quote.maxTokens,
        input_tokens_max: quote.inputTokensMax,
        ...moneyFields({ quote: quote.amount, credit, amount: amountToPay(quote.amount, credit) }),
      } satisfies AnswerOf<typeof createPaidQuote>)
    }),
  )

  app.get(getWalletBalance.path, async ({ env: { incoming, outgoing }, json, header }) =>
    asWallet(getWalletBalance, { incoming, outgoing }, async (wallet) => {
      header('cache-control', 'no-store')
      const isKnown = wallet.isKnown
      const balance = isKnown ? await readBalance(lookUps, wallet) : undefined
      const refunds = isKnown ? await listRefunds(lookUps, wallet, refundsMax) : []
      return json({
        object: 'x402.balance',
        wallet: wallet.address,
        ...moneyFields({
          credit: max(zero, balance?.available ?? zero),
          refundable: balance?.refundable ?? zero,
          held: balance?.held ?? zero,
          charged: balance?.charged ?? zero,
          paid: balance?.deposited ?? zero,
          refunded: balance?.withdrawn ?? zero,
        }),
        refunds: refunds.map(renderRefund),
      } satisfies AnswerOf<typeof getWalletBalance>)
    }),
  )

  app.get(getWalletLiabilityProof.path, async ({ env: { incoming, outgoing }, json, header, req }) =>
    asWallet(getWalletLiabilityProof, { incoming, outgoing }, async (wallet) => {
      header('cache-control', 'no-store')
      const query = getWalletLiabilityProof.query.safeParse(req.query())
      if (!query.success) throw refusalOf(query.error, req.query())
      const proof = await proveLiability(lookUps, wallet, query.data.number)
      return json(writeLiabilityProof(proof) satisfies AnswerOf<typeof getWalletLiabilityProof>)
    }),
  )

  app.post(createRefund.path, async ({ env: { incoming, outgoing }, json }) =>
    asWallet(createRefund, { incoming, outgoing }, async (wallet) => {
      const given = hasBody(incoming)
        ? parseJsonBody(await readJsonBytes(incoming, { ...bodyLimits, bytesMax: bodyBytesMax }, wallet.accountId))
        : {}
      const parsed = createRefund.body.safeParse(given)
      if (!parsed.success) throw refusalOf(parsed.error, given)
      const { id = randomUUID(), amount } = parsed.data
      const order = {
        ...accountRef(wallet),
        id,
        amount: amount === undefined ? undefined : parse(amount),
        min: withdrawalMin,
        transferGas,
      }
      return json(renderRefund(await requestRefund(lookUps, order)) satisfies AnswerOf<typeof createRefund>, 202)
    }),
  )

  /** For a wallet that signed in. */
  async function asWallet<Result>(
    { path, summary: description }: { readonly path: string; readonly summary: string },
    bindings: HonoBindings['Bindings'],
    work: (wallet: X402Wallet) => Promise<Result>,
  ): Promise<Result> {
    return duringFree(bindings, async ({ wallet }, { terms }) => {
      // The caller must be known: the wallet signs in.
      if (wallet === undefined)
        throw new ServiceError(
          'payment_required',
          'Sign in with your wallet (x402 extension sign-in-with-x). No payment is needed.',
          {
            headers: paymentRequired(terms, { path, description }, 0n, Date.now()),
          },
        )
      return work(wallet)
    })
  }

  /** A payment is no proof of identity here: it is not consumed, so anyone who has seen it could replay it. */
  async function duringFree<Result>(
    { incoming, outgoing }: HonoBindings['Bindings'],
    work: (caller: X402Caller, x402: PaidHoldsParts) => Promise<Result>,
  ): Promise<Result> {
    const x402 = await services.x402()
    const visitor = visitorOf(incoming, services.trustProxy)
    const { network } = visitor
    const caller = await identifySignedIn(services, x402, visitor).catch(async (error: unknown) => {
      await unpaid.beforeRefusal(error, { outgoing, network })
      throw error
    })
    return unpaid.duringFree(caller.limited, { incoming, outgoing, network }, async () => {
      if (caller.signIn !== undefined) await useSignIn(lookUps, caller.signIn)
      return work(caller, x402)
    })
  }
}

/** The caller, from the request headers only. Nothing is written before the caller is admitted. */
type X402Caller = {
  /** Undefined: neither a payment nor a sign-in was sent. */
  readonly wallet: X402Wallet | undefined
  readonly payment: PresentedPayment | undefined
  /** Must be consumed when the request is served. */
  readonly signIn: WalletSignIn | undefined
  /** Whose rates and shares apply. Wallets cost nothing to make: those without an account share what their network has. */
  readonly limited: AccountRef & { readonly keyId: string }
}

/** The signer of the payment, otherwise the signed-in wallet. */
async function identify(services: X402Services, x402: PaidHoldsParts, visitor: Visitor): Promise<X402Caller> {
  const header = visitor.header('payment-signature')
  if (header === undefined) return identifySignedIn(services, x402, visitor)
  const { lookUps, ledgerPartitions } = services
  const payment = readPayment(header, x402.terms, Date.now())
  const wallet = await findWallet(lookUps, payment.message.from, ledgerPartitions)
  const isUsed = wallet.isKnown && (await isPaymentUsed(lookUps, wallet, payment.message.nonce))
  // Payments are passed on to third parties. Replaying one must not use up the rate limit of its wallet.
  const limited = wallet.isKnown && !isUsed ? wallet : strangerOf(visitor)
  return { wallet, payment: { ...payment, isUsed }, signIn: undefined, limited }
}

async function identifySignedIn(
  { lookUps, ledgerPartitions }: X402Services,
  { terms }: PaidHoldsParts,
  visitor: Visitor,
): Promise<X402Caller> {
  const stranger = strangerOf(visitor)
  const proof = visitor.header('sign-in-with-x')
  if (proof === undefined) return { wallet: undefined, payment: undefined, signIn: undefined, limited: stranger }
  const signIn = readSignIn(proof, terms, Date.now())
  await refuseUsedSignIn(lookUps, signIn)
  const wallet = await findWallet(lookUps, signIn.address, ledgerPartitions)
  return { wallet, payment: undefined, signIn, limited: wallet.isKnown ? wallet : stranger }
}

/** Stands for all callers of a network without an account. Its ids belong to no account and no key. */
function strangerOf({ network }: Visitor): AccountRef & { readonly keyId: string } {
  return {
    partition: 0,
    accountId: derivedId(`penny x402 network ${network}`),
    keyId: derivedId(`penny x402 caller ${network}`),
  }
}

function renderRefund(refund: Transfer): AnswerOf<typeof x402Contracts.createRefund> {
  return {
    object: 'x402.refund',
    id: refund.id,
    ...moneyFields({ amount: refund.amount }),
    recipient: refund.counterparty,
    state: withdrawalStateOf(refund.state),
    tx_hash: refund.transactionHash ?? null,
    created_at: refund.createdAt.toISOString(),
  }
}
