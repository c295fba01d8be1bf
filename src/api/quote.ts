import { inputLine, outputLine, searchesMax } from '../billing/quote.ts'
import { type QuotedChat, type QuotedFor, quoteChat } from '../chat/quote-chat.ts'
import { refuseUnavailable } from '../chat/tool-offer.ts'
import type { AccountRef } from '../db/account-ref.ts'
import type { Database } from '../db/database.ts'
import { ConcurrencyLimit } from '../fairness/concurrency-limit.ts'
import { disconnectSignal } from '../http/disconnect.ts'
import { findKey } from '../identity/api-keys.ts'
import { parseChatRequest } from '../inference/chat-request.ts'
import { findAccount } from '../ledger/accounts.ts'
import { addMeasures, noMeasures, readUsage } from '../ledger/usage.ts'
import { moneyFields } from '../money/money-fields.ts'
import { cost } from '../money/price.ts'
import { format, fromAtomic, min, type Usdc, zero } from '../money/usdc.ts'
import type { AnswerOf } from '../openapi/contract.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { readKeyId } from './playground.ts'
import { type ApiRouter, NotFoundError } from './router.ts'
import type { ApiServices } from './services.ts'
import { stepMs } from './usage.ts'

type RenderedQuote = AnswerOf<typeof chatContracts.createQuote>

const historyDays = 30
/** Half of the connections of the lookup pool. */
const readsConcurrentMax = 2
const readsWaitingMax = 1_000

/** Runs queries on one of the pools. */
type Reads = <Result>(work: (database: Database) => Promise<Result>) => Promise<Result>

/** The maximum cost of a completion, without a hold. */
export function routeQuote(router: ApiRouter, services: ApiServices): void {
  const { database, lookUps, admission, models } = services
  const readLimit = new ConcurrencyLimit(readsConcurrentMax, readsWaitingMax)
  // Programs ask for quotes before completions. A busy dashboard must not delay them, and they must not delay completions.
  const readForProgram: Reads = (work) => readLimit.run(() => work(lookUps))
  const readForPerson: Reads = (work) => work(database)

  router.at(chatContracts.createQuote).answer(({ owner, visitor, body, outgoing }) => {
    const client = { address: visitor.address, signal: disconnectSignal(outgoing) }
    return answer(readForProgram, owner, body, client)
  })
  router.at(chatContracts.createPlaygroundQuote).answer(({ owner, keysMadeBy, visitor, body, outgoing }) => {
    const { keyId, chat } = readKeyId(body)
    const client = { address: visitor.address, signal: disconnectSignal(outgoing) }
    return answer(readForPerson, { ...owner, keyId, keysMadeBy }, chat, client)
  })

  async function answer(
    read: Reads,
    owner: AccountRef & { readonly keyId: string; readonly keysMadeBy?: string | undefined },
    body: unknown,
    client: Pick<QuotedFor, 'address' | 'signal'>,
  ): Promise<RenderedQuote> {
    const chat = parseChatRequest(body, models)
    refuseUnavailable(chat, admission.web)
    const [key, account] = await read(async (connections) => [
      await findKey(connections, owner, owner.keyId, owner.keysMadeBy),
      await findAccount(connections, owner.partition, owner.accountId),
    ])
    if (key === undefined) throw new NotFoundError()
    const quoted = await quoteChat(admission, chat, { key, x402Wallet: account?.wallet, ...client })
    const typical = await read((connections) => typicalCost(connections, owner, quoted))
    return renderQuote(quoted, typical, fromAtomic(admission.prices.searchPerCall))
  }

  /** The cost with the account's average output of this model; undefined without earlier output. */
  async function typicalCost(
    connections: Database,
    owner: AccountRef,
    { model, inputTokens, quote }: QuotedChat,
  ): Promise<Usdc | undefined> {
    const to = new Date(Math.ceil(Date.now() / stepMs.hour) * stepMs.hour)
    const from = new Date(to.getTime() - historyDays * stepMs.day)
    const steps = await readUsage(connections, owner, { from, to, granularity: 'day', models: [model.id] }, 'none')
    const { succeeded, completionTokens } = steps.map(({ measures }) => measures).reduce(addMeasures, noMeasures)
    if (succeeded === 0) return undefined
    const average = Math.round(completionTokens / succeeded)
    return min(quote.amount, cost([inputLine(model, inputTokens), outputLine(model, average)]))
  }
}

function renderQuote(quoted: QuotedChat, typical: Usdc | undefined, searchPerCall: Usdc): RenderedQuote {
  const { model, quote, refusal, searchMax } = quoted
  return {
    object: 'quote',
    model: model.id,
    max_tokens: quote.maxTokens,
    input_tokens: quoted.inputTokens,
    input_tokens_max: quote.inputTokensMax,
    ...moneyFields({
      quote: quote.amount,
      from_credit: quoted.fromCredit,
      authorized: quoted.authorized,
      available: quoted.available,
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
