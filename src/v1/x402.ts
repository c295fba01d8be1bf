import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Hono } from 'hono'
import { quoteRequest } from '../chat/admit.ts'
import { refuseUnavailable } from '../chat/tool-offer.ts'
import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { derivedId } from '../db/derived-id.ts'
import { disconnectSignal } from '../http/disconnect.ts'
import type { HonoBindings } from '../http/hono.ts'
import { readJsonBytes } from '../http/read-body.ts'
import { UnknownUrlError } from '../http/unknown-url.ts'
import { type Visitor, visitorOf } from '../http/visitor.ts'
import { noOptions } from '../identity/key-options.ts'
import { parseChatRequest } from '../inference/chat-request.ts'
import { parseJsonBody } from '../inference/json-body.ts'
import { readBalance } from '../ledger/balance.ts'
import { listRefunds, type Refund, requestRefund } from '../ledger/refunds.ts'
import { findWallet, type Wallet } from '../ledger/wallet-accounts.ts'
import { moneyFields } from '../money/money-fields.ts'
import { fromAtomic, max, min, parse, zero } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { x402Contracts } from '../openapi/contracts/x402.ts'
import { refusalOf } from '../openapi/input-refusal.ts'
import { PaidHolds, type PaidHoldsParts } from '../x402/paid-holds.ts'
import { type Resource, WalletRequiredError } from '../x402/payment-required.ts'
import { readPayment } from '../x402/read-payment.ts'
import { proveAddress } from '../x402/sign-in.ts'
import { answerChat, type ChatCaller, type ChatRouteServices } from './create-chat-completion.ts'

export type X402Services = ChatRouteServices & {
  /** Undefined without settlement: then wallets cannot pay. */
  readonly x402: PaidHoldsParts | undefined
  readonly lookUps: Database
  readonly ledgerPartitions: number
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
    const x402 = partsOf(services, incoming)
    const { wallet, payment } = await readCaller(services, x402, visitor)
    if (payment?.identifier !== undefined) incoming.headers['idempotency-key'] ??= payment.identifier
    const holds = new PaidHolds(x402, { wallet, payment })
    const isKnown = wallet?.isKnown === true
    // Wallets are free to create, so those without an account share the limits of their network.
    const stranger = strangerOf(visitor)
    const paying = wallet ?? stranger
    const limited = isKnown ? wallet : stranger
    const bearer = { ...paying, depositAddress: undefined, x402Wallet: wallet?.address, options: noOptions }
    return {
      account: accountRef(limited),
      limitedAs: limited.keyId,
      open: async () => ({
        bearer,
        funding: {
          options: async () => (isKnown ? services.keys.currentOptions(bearer) : noOptions),
          // Input is counted before the payment, to know the price. Callers take turns, and refused ones are delayed.
          admission: { holds, refuseUnpaid: async () => {} },
          isLogged: isKnown,
          isRetriable: wallet !== undefined,
          headers: () => holds.headers,
          errorFields: () => holds.errorFields,
        },
      }),
    }
  })
}

/** The other paths of a wallet. */
export function routeX402(app: Hono<HonoBindings>, services: X402Services): void {
  const { lookUps, models, admission, bodyLimits, unpaid } = services
  const { createPaidQuote, getWalletBalance, createRefund } = x402Contracts

  app.post(createPaidQuote.path, async ({ env: { incoming, outgoing }, json }) => {
    const x402 = partsOf(services, incoming)
    const visitor = visitorOf(incoming, services.trustProxy)
    const stranger = strangerOf(visitor)
    return unpaid.duringQuote(stranger, { incoming, outgoing, network: visitor.network }, async () => {
      const { wallet } = await readCaller(services, x402, visitor)
      const body = parseJsonBody(await readJsonBytes(incoming, bodyLimits, stranger.accountId))
      const chat = parseChatRequest(body, models)
      refuseUnavailable(chat, admission.web)
      const counting = { account: stranger.accountId, signal: disconnectSignal(outgoing), refuseUnpaid: async () => {} }
      const { model, quote } = await quoteRequest(admission, chat, '', counting)
      const available = wallet?.isKnown === true ? (await readBalance(lookUps, wallet)).available : zero
      const credit = min(max(zero, available), quote.amount)
      return json({
        object: 'x402.quote',
        model: model.id,
        max_tokens: quote.maxTokens,
        input_tokens_max: quote.inputTokensMax,
        ...moneyFields({ quote: quote.amount, credit, amount: fromAtomic(quote.amount - credit) }),
      } satisfies AnswerOf<typeof createPaidQuote>)
    })
  })

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
          held: balance?.held ?? zero,
          charged: balance?.charged ?? zero,
          paid: balance?.deposited ?? zero,
          refunded: balance?.withdrawn ?? zero,
        }),
        refunds: refunds.map(renderRefund),
      } satisfies AnswerOf<typeof getWalletBalance>)
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
      const order = { ...accountRef(wallet), id, amount: amount === undefined ? undefined : parse(amount) }
      return json(renderRefund(await requestRefund(lookUps, order)) satisfies AnswerOf<typeof createRefund>, 202)
    }),
  )

  /** For a signed-in wallet. Unknown ones are rate-limited like all unpaid requests. */
  async function asWallet<Result>(
    { path, summary: description }: { readonly path: string; readonly summary: string },
    { incoming, outgoing }: HonoBindings['Bindings'],
    work: (wallet: Wallet) => Promise<Result>,
  ): Promise<Result> {
    const x402 = partsOf(services, incoming)
    const visitor = visitorOf(incoming, services.trustProxy)
    return unpaid.during(strangerOf(visitor), { incoming, outgoing, network: visitor.network }, async () =>
      work(await requireWallet(x402, visitor, { path, description })),
    )
  }

  async function requireWallet(x402: PaidHoldsParts, visitor: Visitor, resource: Resource): Promise<Wallet> {
    const proof = visitor.header('sign-in-with-x')
    if (proof === undefined) throw new WalletRequiredError(x402.terms, resource)
    return signedIn(services, x402, proof)
  }
}

function hasBody({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length']) > 0 || headers['transfer-encoding'] !== undefined
}

function partsOf({ x402 }: X402Services, { method = '', url = '' }: IncomingMessage): PaidHoldsParts {
  if (x402 === undefined) throw new UnknownUrlError(method, url)
  return x402
}

/** The caller: the signer of the payment or of the sign-in. */
async function readCaller(services: X402Services, x402: PaidHoldsParts, visitor: Visitor) {
  const header = visitor.header('payment-signature')
  const proof = visitor.header('sign-in-with-x')
  if (header !== undefined) {
    const payment = readPayment(header, x402.terms, Date.now())
    const wallet = await findWallet(services.lookUps, payment.message.from, services.ledgerPartitions)
    return { wallet, payment }
  }
  return { wallet: proof === undefined ? undefined : await signedIn(services, x402, proof), payment: undefined }
}

async function signedIn(services: X402Services, { terms }: PaidHoldsParts, proof: string): Promise<Wallet> {
  const address = await proveAddress(services.lookUps, proof, terms, Date.now())
  return findWallet(services.lookUps, address, services.ledgerPartitions)
}

/** Stands for all callers of a network without an account. Its ids belong to no account and no key. */
function strangerOf({ network }: Visitor): AccountRef & { readonly keyId: string } {
  return {
    partition: 0,
    accountId: derivedId(`penny x402 network ${network}`),
    keyId: derivedId(`penny x402 caller ${network}`),
  }
}

function renderRefund(refund: Refund): AnswerOf<typeof x402Contracts.createRefund> {
  return {
    object: 'x402.refund',
    id: refund.id,
    ...moneyFields({ amount: refund.amount }),
    recipient: refund.recipient,
    state: refund.state,
    tx_hash: refund.transactionHash ?? null,
    created_at: refund.createdAt.toISOString(),
  }
}
