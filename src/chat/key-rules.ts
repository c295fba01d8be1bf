import { affordableMaxTokens } from '../billing/quote.ts'
import { ServiceError } from '../errors.ts'
import { checkAddress, IpNotAllowedError, type KeyOptions } from '../identity/key-options.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, type Usdc, zero } from '../money/usdc.ts'
import type { QuotedRequest } from './admit.ts'

// A key's rules, in the order in which they are reported. All are checked before the hold.

/** Throws when the key may not send this request at all, or not from this address. */
export function checkKeyRules(options: KeyOptions, chat: ChatRequest, address: string): void {
  checkAddress(options, address)
  checkModel(options, chat.model)
  if (options.webTools) return
  if (chat.webSearch === true) throw new WebToolsNotAllowedError('web_search')
  if (chat.webFetch === true) throw new WebToolsNotAllowedError('web_fetch')
}

export function checkModel({ allowedModels }: KeyOptions, model: string): void {
  if (!isModelAllowed({ allowedModels }, model)) throw new ModelNotAllowedError(model, allowedModels)
}

export function isModelAllowed({ allowedModels }: Pick<KeyOptions, 'allowedModels'>, model: string): boolean {
  return allowedModels.length === 0 || allowedModels.includes(model)
}

/** Whether one of the functions here threw it. */
export function isKeyRuleError(error: unknown): boolean {
  return [IpNotAllowedError, ModelNotAllowedError, WebToolsNotAllowedError, QuoteExceedsKeyCapError].some(
    (rule) => error instanceof rule,
  )
}

/** The request under this key's rules: without the default web tools when the key does not allow them. */
export function underKeyRules(options: KeyOptions, chat: ChatRequest): ChatRequest {
  if (options.webTools) return chat
  return { ...chat, webSearch: chat.webSearch ?? false, webFetch: chat.webFetch ?? false }
}

/** The costs that a key's cap is compared with. */
export type CappedCost = Pick<QuotedRequest, 'model' | 'quote' | 'searchMax'>

/** Throws when the request could cost more than the key allows per request. */
export function checkKeyCap({ maxRequestCost }: KeyOptions, quoted: CappedCost): void {
  if (maxRequestCost === undefined || quoted.quote.amount + quoted.searchMax <= maxRequestCost) return
  throw new QuoteExceedsKeyCapError(quoted, maxRequestCost)
}

export class ModelNotAllowedError extends ServiceError {
  constructor(model: string, allowed: readonly string[]) {
    super(
      'model_not_allowed',
      `This API key may not use ${model}. It may use ${allowed.join(', ')}. Send one of those as model, or change the key's models.`,
      { param: 'model' },
    )
  }
}

export class WebToolsNotAllowedError extends ServiceError {
  constructor(param: 'web_search' | 'web_fetch') {
    super(
      'web_tools_not_allowed',
      `\`${param}\` is true, but web tools are turned off for this API key. Leave it out or send false.`,
      { param },
    )
  }
}

export class QuoteExceedsKeyCapError extends ServiceError {
  constructor({ model, quote, searchMax }: CappedCost, keyCap: Usdc) {
    const required = fromAtomic(quote.amount + searchMax)
    const affordable = Math.max(
      0,
      affordableMaxTokens(model, quote.inputTokensMax, max(zero, fromAtomic(keyCap - searchMax))),
    )
    const withSearch =
      searchMax === zero ? '' : ` (quote ${format(quote.amount)}, web search up to ${format(searchMax)})`
    const advice = [
      ...(searchMax === zero ? [] : ['send web_search: false']),
      ...(affordable < 1 ? [] : [`ask for at most ${affordable} max_tokens`]),
      "raise the key's cap",
    ].join(', or ')
    super(
      'quote_exceeds_key_cap',
      `This request may cost up to ${format(required)} USDC${withSearch}; this key allows ${format(keyCap)} USDC per request. ` +
        `${advice[0]!.toUpperCase()}${advice.slice(1)}.`,
      {
        extra: {
          ...moneyFields({ required, quote: quote.amount, search_max: searchMax, key_cap: keyCap }),
          affordable_max_tokens: affordable,
        },
      },
    )
  }
}
