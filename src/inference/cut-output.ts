import { type ChatEvent, writtenText } from './chat-events.ts'
import { charactersPerTokenMax } from './tokens.ts'

/** Lets an answer through up to a number of tokens. */
export type OutputCut = {
  /** What of these events the client gets. Wait for one call before making the next. */
  push(events: readonly ChatEvent[]): Promise<readonly ChatEvent[]>
}

/**
 * Cuts an answer at a count below the upstream's minimum. Past the cut the upstream's own end still comes through, with
 * the usage it reports and `length` as the reason: the customer asked for no more, so even a failure after it is no loss.
 */
export function createOutputCut(tokensMax: number, count: (text: string) => Promise<number>): OutputCut {
  /** Text and tokens let through, by what they belong to: neighbours in one text may share a token, others cannot. */
  const channels = new Map<string, { text: string; tokens: number }>()
  let isCut = false

  /** The longest beginning of a text that still fits behind what its channel holds. */
  async function fitting(channel: string, text: string): Promise<string> {
    const before = channels.get(channel) ?? { text: '', tokens: 0 }
    const taken = [...channels.values()].reduce((sum, { tokens }) => sum + tokens, 0)
    const room = tokensMax - taken + before.tokens
    // No prefix of so many tokens is longer than this.
    const characters = [...text.slice(0, room * charactersPerTokenMax)]
    const tokensOf = (length: number) => count(before.text + characters.slice(0, length).join(''))

    let fits = characters.length
    let tokens = await tokensOf(fits)
    if (tokens > room) {
      fits = await lastFitting(characters.length, async (length) => (await tokensOf(length)) <= room)
      tokens = await tokensOf(fits)
    }
    const kept = characters.slice(0, fits).join('')
    channels.set(channel, { text: before.text + kept, tokens })
    return kept
  }

  async function pass(event: ChatEvent): Promise<readonly ChatEvent[]> {
    if (isCut) return closing(event)
    if (event.type === 'tool-call') {
      isCut = (await fitting(`call ${event.index}`, event.name)) !== event.name
      return isCut ? [] : [event]
    }
    if (!('text' in event)) return [event]
    const written = writtenText(event)
    const kept = await fitting(event.type === 'tool-arguments' ? `call ${event.index}` : event.type, written)
    isCut = kept !== written
    if (!isCut) return [event]
    return kept === '' ? [] : [{ ...event, text: event.text.slice(0, -written.length) + kept }]
  }

  return {
    async push(events) {
      const passed: ChatEvent[] = []
      for (const event of events) passed.push(...(await pass(event)))
      return passed
    },
  }
}

function closing(event: ChatEvent): readonly ChatEvent[] {
  if (event.type !== 'finish' && event.type !== 'failed') return []
  return [{ type: 'finish', reason: 'length', ...('usage' in event && { usage: event.usage }) }]
}

/** The largest length below `tooLong` that fits, by halving; zero always does. */
async function lastFitting(tooLong: number, fits: (length: number) => Promise<boolean>): Promise<number> {
  let low = 0
  let high = tooLong
  while (high - low > 1) {
    const middle = (low + high) >>> 1
    if (await fits(middle)) low = middle
    else high = middle
  }
  return low
}
