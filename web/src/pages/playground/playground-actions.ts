import type { Key, Model } from '../../api/shapes.ts'
import type { ChatBody } from '../../snippets/code.ts'
import {
  addLane,
  changeAnswer,
  changeLane,
  changeMessage,
  closeLane,
  cutAfterQuestion,
  emptyConversation,
  isRunning,
  type Lane,
  lanesMax,
} from './conversation.ts'
import type { ConversationStore } from './conversation-store.ts'
import { type Abilities, bodyOf, callProblem, modelProblem, type Settings } from './playground-form.ts'

/** What the user can do with the conversation. Everything that costs money goes through `#answer`. */
export class PlaygroundActions {
  readonly #store: ConversationStore
  readonly #models: readonly Model[]
  readonly #keys: readonly Key[]

  constructor(store: ConversationStore, models: readonly Model[], keys: readonly Key[]) {
    this.#store = store
    this.#models = models
    this.#keys = keys
  }

  set(changed: Partial<Settings>): void {
    this.#store.update((state) => ({ ...state, settings: { ...state.settings, ...changed } }))
  }

  setModel(at: number, model: string): void {
    this.#update((conversation) => changeLane(conversation, at, (lane) => ({ ...lane, model })))
  }

  setDraft(draft: string): void {
    this.#update((conversation) => ({ ...conversation, draft }))
  }

  /** Sends the draft to every lane. */
  send(): void {
    const message = {
      id: crypto.randomUUID(),
      role: 'user' as const,
      content: this.#store.snapshot().conversation.draft,
    }
    this.#update((conversation) => ({
      ...conversation,
      draft: '',
      lanes: conversation.lanes.map((lane) => ({ ...lane, messages: [...lane.messages, message] })),
    }))
    for (const at of this.#store.snapshot().conversation.lanes.keys()) this.#answer(at)
  }

  /** Sends a lane as it is: after the results of tool calls were written. */
  continue(at: number): void {
    if (this.problem === undefined) this.#answer(at)
  }

  /** Requests an answer, or the answers to a message, again. Removes all later messages. */
  answerAgain(id: string): void {
    const { conversation: before } = this.#store.snapshot()
    // An answer that is streaming would leave the page, and be charged.
    if (this.problem !== undefined || isRunning(before)) return
    for (const [at, { messages }] of before.lanes.entries()) {
      if (!messages.some((message) => message.id === id)) continue
      this.#update((conversation) => changeLane(conversation, at, (lane) => cutAfterQuestion(lane, id)))
      this.#answer(at)
    }
  }

  edit(id: string, content: string): void {
    this.#update((conversation) => changeMessage(conversation, id, (message) => ({ ...message, content })))
  }

  remove(id: string): void {
    this.#update((conversation) => changeMessage(conversation, id, () => undefined))
  }

  setResult(id: string, callId: string, result: string): void {
    this.#update((conversation) =>
      changeAnswer(conversation, id, (answer) => ({
        ...answer,
        toolCalls: answer.toolCalls.map((call) => (call.id === callId ? { ...call, result } : call)),
      })),
    )
  }

  stop(id: string): void {
    this.#store.stop(id)
  }

  stopAll(): void {
    this.#store.stopAll()
  }

  compare(): void {
    const { lanes } = this.#store.snapshot().conversation
    const allowed = this.#models.filter(({ id }) => modelProblem(this.#payingKey, id) === undefined)
    const other = allowed.find(({ id }) => id !== lanes[0]!.model) ?? this.#models[0]!
    this.#update((conversation) => addLane(conversation, other.id, () => crypto.randomUUID()))
  }

  close(at: number): void {
    this.#store.update((state) => ({
      ...state,
      conversation: closeLane(state.conversation, at),
      sent: state.sent.filter((_, index) => index !== at),
    }))
  }

  /** Starts over with the same settings and models. */
  clear(): void {
    this.#store.update((state) => {
      const [first, ...others] = state.conversation.lanes.map(({ model }) => model)
      const empty = emptyConversation(first!)
      return {
        ...state,
        conversation: others.reduce((all, model) => addLane(all, model, () => crypto.randomUUID()), empty),
        sent: [],
      }
    })
  }

  /** The call that a lane would make with this draft. */
  bodyFor(lane: Lane, draft: string): ChatBody {
    return bodyOf(this.#store.snapshot().settings, lane, draft, this.#abilitiesOf(lane.model))
  }

  /** The reason why no call can be made now; the buttons for paid calls are then disabled. */
  get problem(): string | undefined {
    const { settings, conversation } = this.#store.snapshot()
    // A key that was revoked or has expired cannot pay.
    const keyId = this.#payingKey?.id ?? ''
    return callProblem({ ...settings, keyId }, conversation.lanes, this.#payingKey)
  }

  get canCompare(): boolean {
    return this.#store.snapshot().conversation.lanes.length < lanesMax
  }

  #answer(at: number): void {
    const { settings, conversation } = this.#store.snapshot()
    this.#store.answer(at, settings.keyId, this.bodyFor(conversation.lanes[at]!, ''))
  }

  #abilitiesOf(model: string): Abilities {
    return {
      efforts: effortsOf(this.#models.find(({ id }) => id === model)),
      hasWebTools: this.#payingKey?.web_tools !== false,
    }
  }

  get #payingKey(): Key | undefined {
    const { keyId } = this.#store.snapshot().settings
    return this.#keys.find(({ id }) => id === keyId)
  }

  #update(change: (conversation: Conversation) => Conversation): void {
    this.#store.update((state) => ({ ...state, conversation: change(state.conversation) }))
  }
}

type Conversation = ReturnType<typeof emptyConversation>

/** The reasoning efforts that a model takes; none for one that does not reason. */
export function effortsOf(model: Model | undefined): readonly string[] {
  return model?.supported_parameters.includes('reasoning_effort') === true ? model.reasoning.supported_efforts : []
}
