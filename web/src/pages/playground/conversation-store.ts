import { ApiError, request } from '../../api/call.ts'
import type { ChatBody } from '../../snippets/code.ts'
import {
  AnswerFailedError,
  addToolCalls,
  type Chunk,
  readChunk,
  readChunks,
  readWhole,
  type Said,
  StreamCutError,
  type ToolActivity,
  type WholeAnswer,
} from './chat-stream.ts'
import {
  type Activity,
  type Answer,
  type AnswerError,
  addRequest,
  type Conversation,
  changeAnswer,
  changeLane,
  emptyAnswer,
  emptyConversation,
  interruptRunning,
} from './conversation.ts'
import { storageKey } from './kept-conversations.ts'
import { emptySettings, type Settings } from './playground-form.ts'

/** The state that the page shows. `sent` is the last call of each lane, for the code panel. */
export type PlaygroundState = {
  readonly settings: Settings
  readonly conversation: Conversation
  readonly sent: readonly (ChatBody | undefined)[]
  /** The conversation is too large for the session storage: a reload would lose its latest part. */
  readonly isTooLargeToKeep: boolean
}

export type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem' | 'removeItem'>

/** Text and meter are drawn at most four times a second. */
const drawMs = 250
const saveMs = 400
const version = 1

/**
 * The conversation of one tab, with the answers that are streaming into it. It outlives the page component, so that answers
 * continue while the user looks at another page, and it is kept in the session storage, so that a reload loses nothing.
 */
export class ConversationStore {
  readonly #storage: Storage
  readonly #key: string
  readonly #listeners = new Set<() => void>()
  /** By the id of the answer that is streaming. */
  readonly #running = new Map<string, AbortController>()
  #state: PlaygroundState
  #isClosed = false
  #drawTimer: ReturnType<typeof setTimeout> | undefined
  #saveTimer: ReturnType<typeof setTimeout> | undefined

  constructor(storage: Storage, accountId: string, defaults: { readonly model: string; readonly keyId: string }) {
    this.#storage = storage
    this.#key = storageKey(accountId)
    this.#state = this.#restore() ?? {
      settings: { ...emptySettings, keyId: defaults.keyId },
      conversation: emptyConversation(defaults.model),
      sent: [],
      isTooLargeToKeep: false,
    }
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly snapshot = (): PlaygroundState => this.#state

  /** Changes the state and notifies listeners immediately. */
  update(change: (state: PlaygroundState) => PlaygroundState): void {
    this.#state = change(this.#state)
    this.#draw()
    this.#saveTimer ??= setTimeout(() => this.save(), saveMs)
  }

  /** Sends the call of one lane; the answer streams into its last place. */
  answer(at: number, keyId: string, body: ChatBody): void {
    const id = crypto.randomUUID()
    const controller = new AbortController()
    this.#running.set(id, controller)
    this.update((state) => ({
      ...state,
      conversation: changeLane(state.conversation, at, (lane) => ({
        ...lane,
        messages: [...lane.messages, emptyAnswer(id, body.model)],
      })),
      sent: [0, 1].map((lane) => (lane === at ? body : state.sent[lane])),
    }))
    void this.#receive(id, { keyId, body, signal: controller.signal })
      .then(() => this.#end(id, { state: 'done' }))
      .catch((error: unknown) => this.#fail(id, error, controller.signal.aborted))
      .finally(() => this.#running.delete(id))
  }

  stop(id: string): void {
    this.#change(id, (answer) => ({ ...answer, state: 'stopping' }))
    this.#running.get(id)?.abort()
  }

  stopAll(): void {
    for (const id of this.#running.keys()) this.stop(id)
  }

  /** The user signed out: nothing streams on, and nothing is written any more. */
  close(): void {
    this.#isClosed = true
    clearTimeout(this.#saveTimer)
    this.stopAll()
  }

  /** Writes the session storage now; called before the page is left. */
  save(): void {
    clearTimeout(this.#saveTimer)
    this.#saveTimer = undefined
    if (this.#isClosed) return
    const { settings, conversation, sent } = this.#state
    let isTooLargeToKeep = false
    try {
      this.#storage.setItem(this.#key, JSON.stringify({ version, settings, conversation, sent }))
    } catch {
      isTooLargeToKeep = true
    }
    if (isTooLargeToKeep === this.#state.isTooLargeToKeep) return
    this.#state = { ...this.#state, isTooLargeToKeep }
    this.#draw()
  }

  #restore(): PlaygroundState | undefined {
    try {
      const kept = JSON.parse(this.#storage.getItem(this.#key) ?? 'null') as
        | (PlaygroundState & { version: number })
        | null
      if (kept?.version !== version || kept.conversation.lanes.length === 0) return undefined
      return {
        settings: { ...emptySettings, ...kept.settings },
        conversation: interruptRunning(kept.conversation),
        sent: kept.sent,
        isTooLargeToKeep: false,
      }
    } catch {
      return undefined
    }
  }

  async #receive(
    id: string,
    { keyId, body, signal }: { readonly keyId: string; readonly body: ChatBody; readonly signal: AbortSignal },
  ): Promise<void> {
    const response = await request('POST /api/playground', { body: { key_id: keyId, ...body } }, { signal })
    // For its row in the ledger and for the total.
    const requestId = response.headers.get('x-router-request-id')
    if (requestId !== null)
      this.update((state) => ({ ...state, conversation: addRequest(state.conversation, id, requestId) }))
    if (body.stream !== true) {
      this.#append(id, readWhole((await response.json()) as WholeAnswer))
      return
    }
    for await (const chunk of readChunks(response.body!)) this.#append(id, readChunk(chunk), chunk)
  }

  #append(id: string, said: Said, { running_cost: cost, tool_activity: activity }: Chunk = {}): void {
    this.#change(id, (answer) => ({
      ...answer,
      content: answer.content + said.text,
      reasoning: answer.reasoning + said.reasoning,
      toolCalls: addToolCalls(answer.toolCalls, said.toolCalls),
      finishReason: said.finishReason ?? answer.finishReason,
      ...(activity !== undefined && { activity: addActivity(answer.activity, activity) }),
      ...(cost !== undefined && {
        runningCost: {
          costAtomic: cost.cost_atomic,
          promptTokens: cost.prompt_tokens,
          completionTokens: cost.completion_tokens,
        },
      }),
    }))
  }

  /** Changes an answer; listeners are notified within 250 ms. */
  #change(id: string, change: (answer: Answer) => Answer): void {
    this.#state = { ...this.#state, conversation: changeAnswer(this.#state.conversation, id, change) }
    this.#drawTimer ??= setTimeout(() => this.#draw(), drawMs)
    this.#saveTimer ??= setTimeout(() => this.save(), saveMs)
  }

  #end(id: string, change: Partial<Answer>): void {
    this.#change(id, (answer) => ({ ...answer, ...change }))
    this.#draw()
    this.save()
  }

  #fail(id: string, error: unknown, isStopped: boolean): void {
    // Half a tool call cannot be answered.
    if (isStopped) this.#end(id, { state: 'stopped', toolCalls: [] })
    else if (isConnectionLoss(error)) this.#end(id, { state: 'interrupted', toolCalls: [] })
    else {
      const refused = error instanceof ApiError ? error.requestId || undefined : undefined
      this.#end(id, { state: 'failed', toolCalls: [], error: errorOf(error), ...(refused && { requestId: refused }) })
    }
  }

  #draw(): void {
    clearTimeout(this.#drawTimer)
    this.#drawTimer = undefined
    for (const listener of this.#listeners) listener()
  }
}

/** The network or a proxy failed in the middle of an answer, or a reload ended it: browsers report this as TypeError, AbortError or a normal end. */
function isConnectionLoss(error: unknown): boolean {
  return error instanceof TypeError || error instanceof DOMException || error instanceof StreamCutError
}

function errorOf(error: unknown): AnswerError {
  const message = error instanceof Error ? error.message : String(error)
  if (!(error instanceof ApiError)) {
    const code = error instanceof AnswerFailedError ? error.code : ''
    return { message, code, affordableMaxTokens: undefined }
  }
  const affordable = Number(error.details.affordable_max_tokens)
  return { message, code: error.code, affordableMaxTokens: affordable > 0 ? affordable : undefined }
}

/** A call has an event at its start and one at its end: the second replaces the first. */
function addActivity(before: readonly Activity[], told: ToolActivity): readonly Activity[] {
  const id = `${told.type}-${told.call}`
  const next = { id, text: describe(told), isRunning: told.status === 'started' }
  return before.some((one) => one.id === id) ? before.map((one) => (one.id === id ? next : one)) : [...before, next]
}

function describe({ type, status, query, url }: ToolActivity): string {
  const isSearch = type === 'web_search'
  const what = isSearch ? `“${query ?? ''}”` : (url ?? 'a page')
  if (status === 'started') return isSearch ? `Searching the web for ${what}` : `Reading ${what}`
  if (status === 'completed') return isSearch ? `Searched the web for ${what}` : `Read ${what}`
  return isSearch ? `The search for ${what} failed` : `${what} could not be read`
}
