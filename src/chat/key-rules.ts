import { affordableMaxTokens } from '../billing/quote.ts'
import { type ErrorCode, ServiceError } from '../errors.ts'
import { checkAddress, type KeyOptions } from '../identity/key-options.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import { moneyFields } from '../money/money-fields.ts'
import { format, fromAtomic, max, zero } from '../money/usdc.ts'
import type { QuotedRequest } from './admit.ts'

// A key's rules, in the order in which they are reported. All are checked before the hold.

/** Throws when the key may not send this request at all, or not from this address. */
export function checkKeyRules(options: KeyOptions, chat: ChatRequest, address: string): void {
  checkAddress(options, address)
  checkModel(options, chat.model)
  if (options.webTools) return
  const param = chat.webSearch === true ? 'web_search' : chat.webFetch === true ? 'web_fetch' : undefined
  if (param === undefined) return
  throw new ServiceError(
    'web_tools_not_allowed',
    `\`${param}\` is true, but web tools are turned off for this API key. Leave it out or send false.`,
    { param },
  )
}

export function checkModel({ allowedModels }: KeyOptions, model: string): void {
  if (isModelAllowed({ allowedModels }, model)) return
  throw new ServiceError(
    'model_not_allowed',
    `This API key may not use ${model}. It may use ${allowedModels.join(', ')}. Send one of those as model, or change the key's models.`,
    { param: 'model' },
  )
}

export function isModelAllowed({ allowedModels }: Pick<KeyOptions, 'allowedModels'>, model: string): boolean {
  return allowedModels.length === 0 || allowedModels.includes(model)
}

const ruleCodes = new Set<ErrorCode>([
  'ip_not_allowed',
  'model_not_allowed',
  'web_tools_not_allowed',
  'quote_exceeds_key_cap',
])

/** Whether one of the functions here threw it. */
export function isKeyRuleError(error: unknown): boolean {
  return error instanceof ServiceError && ruleCodes.has(error.code)
}

/** The request under this key's rules: without the default web tools when the key does not allow them. */
export function underKeyRules(options: KeyOptions, chat: ChatRequest): ChatRequest {
  if (options.webTools) return chat
  return { ...chat, webSearch: chat.webSearch ?? false, webFetch: chat.webFetch ?? false }
}

/** The costs that a key's cap is compared with. */
export type CappedCost = Pick<QuotedRequest, 'model' | 'quote' | 'searchMax'>

/** Throws when the request could cost more than the key allows per request. */
export function checkKeyCap({ maxRequestCost }: KeyOptions, { model, quote, searchMax }: CappedCost): void {
  const required = fromAtomic(quote.amount + searchMax)
  if (maxRequestCost === undefined || required <= maxRequestCost) return
  const affordable = Math.max(
    0,
    affordableMaxTokens(model, quote.inputTokensMax, max(zero, fromAtomic(maxRequestCost - searchMax))),
  )
  const withSearch = searchMax === zero ? '' : ` (quote ${format(quote.amount)}, web search up to ${format(searchMax)})`
  const advice = [
    ...(searchMax === zero ? [] : ['send web_search: false']),
    ...(affordable < 1 ? [] : [`ask for at most ${affordable} max_tokens`]),
    "raise the key's cap",
  ].join(', or ')
  throw new ServiceError(
    'quote_exceeds_key_cap',
    `This request may cost up to ${format(required)} USDC${withSearch}; this key allows ${format(maxRequestCost)} USDC per request. ` +
      `${advice[0]!.toUpperCase()}${advice.slice(1)}.`,
    {
      extra: {
        ...moneyFields({ required, quote: quote.amount, search_max: searchMax, key_cap: maxRequestCost }),
        affordable_max_tokens: affordable,
      },
    },
  )
}
