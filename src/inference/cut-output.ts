import { type ChatEvent, writtenText } from './chat-events.ts'
import { charactersPerTokenMax } from './tokens.ts'

/** After the cut a correct upstream writes fewer tokens than its minimum of sixteen. */
const droppedCharactersMax = 16 * charactersPerTokenMax

/** Passes an answer through, up to a number of tokens. */
export type OutputCut = {
  /** Returns the events that the client gets. Await each call before the next one. */
  push(events: readonly ChatEvent[]): Promise<readonly ChatEvent[]>
}

/**
 * Truncates an answer at a limit below the upstream's minimum. After the cut only the upstream's end passes, with its reported
 * usage and `length` as the reason. A failure after the cut also ends with `length`: the customer already has everything that was
 * asked for. An upstream that never ends is not waited for: the answer then ends without a report.
 */
export function createOutputCut(tokensMax: number, count: (text: string) => Promise<number>): OutputCut {
  /**
   * Text and tokens passed so far, by channel: consecutive pieces of one text may share a token, pieces of different texts cannot.
   */
  const channels = new Map<string, { text: string; tokens: number }>()
  let isCut = false
  let droppedCharacters = 0

  /** The longest prefix of a text that still fits after what its channel already contains. */
  async function fitting(channel: string, text: string): Promise<string> {
    const before = channels.get(channel) ?? { text: '', tokens: 0 }
    const taken = [...channels.values()].reduce((sum, { tokens }) => sum + tokens, 0)
    const room = tokensMax - taken + before.tokens
    // No prefix with that many tokens is longer than this.
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

  function drop(event: ChatEvent): readonly ChatEvent[] {
    if (event.type === 'finish' || event.type === 'failed') {
      return [{ type: 'finish', reason: 'length', ...('usage' in event && { usage: event.usage }) }]
    }
    if ('text' in event) droppedCharacters += event.text.length
    if (event.type === 'tool-call') droppedCharacters += event.name.length
    return droppedCharacters > droppedCharactersMax ? [{ type: 'finish', reason: 'length' }] : []
  }

  async function pass(event: ChatEvent): Promise<readonly ChatEvent[]> {
    if (isCut) return drop(event)
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
      for (const event of events) {
        passed.push(...(await pass(event)))
        if (passed.at(-1)?.type === 'finish') break
      }
      return passed
    },
  }
}

/** The largest fitting length below `tooLong`, by binary search. Zero always fits. */
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
