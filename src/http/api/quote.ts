import type { AccountRef } from '../../account-ref.ts'
import { inputLine, outputLine, searchesMax } from '../../billing/quote.ts'
import { type QuotedChat, quoteChat } from '../../chat/quote-chat.ts'
import { refuseUnavailable } from '../../chat/tool-offer.ts'
import { findKey } from '../../identity/api-keys.ts'
import { parseChatRequest } from '../../inference/chat-request.ts'
import { type Balance, readBalance } from '../../ledger/balance.ts'
import { addMeasures, noMeasures, readUsage } from '../../ledger/usage.ts'
import { moneyFields } from '../../money/money-fields.ts'
import { cost } from '../../money/price.ts'
import { format, fromAtomic, min, type Usdc, zero } from '../../money/usdc.ts'
import { goneSignal } from '../gone.ts'
import type { AnswerOf } from './contract.ts'
import { chatContracts } from './contracts/chat.ts'
import { readKeyId } from './playground.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { stepMs } from './usage.ts'

type RenderedQuote = AnswerOf<typeof chatContracts.createQuote>

const historyDays = 30

/** What a completion would cost at most, said before anything is held. */
export function routeQuote(router: ApiRouter, services: ApiServices): void {
  const { database, admission, models } = services

  router
    .at(chatContracts.createQuote)
    .answer(({ owner, body, outgoing }) =>
      answer(owner, (owner as AccountRef & { readonly keyId: string }).keyId, body, goneSignal(outgoing)),
    )
  router.at(chatContracts.createPlaygroundQuote).answer(({ owner, body, outgoing }) => {
    const { keyId, chat } = readKeyId(body)
    return answer(owner, keyId, chat, goneSignal(outgoing))
  })

  async function answer(owner: AccountRef, keyId: string, body: unknown, signal: AbortSignal): Promise<RenderedQuote> {
    const chat = parseChatRequest(body, models)
    refuseUnavailable(chat, admission.web)
    const [balance, key] = await Promise.all([readBalance(database, owner), findKey(database, owner, keyId)])
    if (key === undefined) throw new NotFoundError()
    const quoted = await quoteChat(admission, chat, { balance, key, signal })
    return renderQuote(quoted, balance, await typicalCost(owner, quoted), fromAtomic(admission.prices.searchPerCall))
  }

  /** This input with as many tokens of output as the model gave this account on average; undefined before it gave any. */
  async function typicalCost(owner: AccountRef, { model, inputTokens, quote }: QuotedChat): Promise<Usdc | undefined> {
    const to = new Date(Math.ceil(Date.now() / stepMs.hour) * stepMs.hour)
    const from = new Date(to.getTime() - historyDays * stepMs.day)
    const steps = await readUsage(database, owner, { from, to, granularity: 'day', models: [model.id] }, 'none')
    const { succeeded, completionTokens } = steps.map(({ measures }) => measures).reduce(addMeasures, noMeasures)
    if (succeeded === 0) return undefined
    const average = Math.round(completionTokens / succeeded)
    return min(quote.amount, cost([inputLine(model, inputTokens), outputLine(model, average)]))
  }
}

function renderQuote(
  quoted: QuotedChat,
  balance: Balance,
  typical: Usdc | undefined,
  searchPerCall: Usdc,
): RenderedQuote {
  const { model, quote, refusal, searchMax } = quoted
  return {
    object: 'quote',
    model: model.id,
    max_tokens: quote.maxTokens,
    input_tokens_max: quote.inputTokensMax,
    ...moneyFields({
      quote: quote.amount,
      from_credit: quoted.fromCredit,
      authorized: quoted.authorized,
      available: balance.available,
      search_max: searchMax,
      search_per_call: searchMax === zero ? zero : searchPerCall,
    }),
    search_calls_max: searchMax === zero ? 0 : searchesMax,
    typical_atomic: typical?.toString() ?? null,
    typical: typical === undefined ? null : format(typical),
    admitted: refusal === undefined,
    refusal: refusal === undefined ? null : { code: refusal.code, message: refusal.message },
    affordable_max_tokens: quoted.affordableMaxTokens,
    lines: [
      { item: 'input_tokens', units: quote.inputTokensMax, per_million: format(model.inputPerMillion) },
      { item: 'output_tokens', units: quote.maxTokens, per_million: format(model.outputPerMillion) },
    ],
  }
}
