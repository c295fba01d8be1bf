import { ServiceError } from '../errors.ts'
import type { ChatRequest } from '../inference/chat-request.ts'
import type { FunctionTool } from '../inference/chat-tools.ts'
import type { WebTools } from '../tools/web-tools.ts'

/** The names of our tools that the model is offered. */
export type Offer = ReadonlySet<string>

const both: Offer = new Set(['web_search', 'web_fetch'])
const searchOnly: Offer = new Set(['web_search'])
const fetchOnly: Offer = new Set(['web_fetch'])
const nothing: Offer = new Set()

/** Refuses a search that the client asked for and that is unavailable. Default tools are silently left out instead. */
export function refuseUnavailable(chat: ChatRequest, web: WebTools): void {
  if (chat.webSearch === true && web.search === undefined)
    throw new ServiceError(
      'web_search_unavailable',
      '`web_search` is true, but this service has no search provider. Leave it out or send false.',
      {
        param: 'web_search',
      },
    )
}

/**
 * Both tools are on by default for a request without its own tools, and off for one with them. A client that allows no tool calls
 * gets none of ours either.
 */
export function offerTools(chat: ChatRequest, web: WebTools): Offer {
  if (chat.toolChoice === 'none') return nothing
  const byDefault = chat.tools.length === 0
  const search = (chat.webSearch ?? byDefault) && web.search !== undefined
  const fetch = chat.webFetch ?? byDefault
  if (search) return fetch ? both : searchOnly
  return fetch ? fetchOnly : nothing
}

// Every request with tools pays for these words, so they are short.
const definitions: readonly FunctionTool[] = [
  define('web_search', 'Search the web for current facts.', 'query'),
  define('web_fetch', 'Read a page whose URL the user gave or a search returned.', 'url'),
]

function define(name: string, description: string, argument: string): FunctionTool {
  const parameters = {
    type: 'object',
    properties: { [argument]: { type: 'string' } },
    required: [argument],
    additionalProperties: false,
  }
  return { name, description, parameters, strict: true }
}

export function toolDefinitions(offer: Offer): readonly FunctionTool[] {
  return definitions.filter(({ name }) => offer.has(name))
}
