// The conversation as plain data: one or two lanes, each a model with its own answers to the same messages.

export type ToolCall = {
  readonly id: string
  readonly name: string
  /** As the model wrote it: JSON, or an attempt at it. */
  readonly arguments: string
  /** The tool result that the user wrote. */
  readonly result: string
}

export type UserMessage = { readonly id: string; readonly role: 'user'; readonly content: string }

export type AnswerState = 'running' | 'stopping' | 'done' | 'stopped' | 'interrupted' | 'failed'

export type AnswerError = {
  readonly message: string
  readonly code: string
  /** The `max_tokens` that would be admitted, where money was missing. */
  readonly affordableMaxTokens: number | undefined
}

/** The cost so far, as the service reports it while it streams. */
export type RunningCost = {
  readonly costAtomic: string
  readonly promptTokens: number
  readonly completionTokens: number
}

export type Activity = { readonly id: string; readonly text: string; readonly isRunning: boolean }

export type Answer = {
  readonly id: string
  readonly role: 'assistant'
  readonly model: string
  readonly content: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCall[]
  /** Searches and fetches of the service, in order. */
  readonly activity: readonly Activity[]
  readonly state: AnswerState
  /** Of the ledger row; undefined for an answer that was copied into a second lane. */
  readonly requestId: string | undefined
  readonly runningCost: RunningCost | undefined
  /** `length` when max tokens cut the answer. */
  readonly finishReason: string | undefined
  readonly error: AnswerError | undefined
}

export type Message = UserMessage | Answer

export type Lane = {
  readonly model: string
  readonly messages: readonly Message[]
  /** All requests of this lane, including those of removed answers: the cost of the lane is their sum. */
  readonly requestIds: readonly string[]
}

export type Conversation = {
  readonly lanes: readonly Lane[]
  /** Requests of a lane that was closed. */
  readonly pastRequestIds: readonly string[]
  /** The draft of the next message. */
  readonly draft: string
}

export const lanesMax = 2

export function emptyConversation(model: string): Conversation {
  return { lanes: [{ model, messages: [], requestIds: [] }], pastRequestIds: [], draft: '' }
}

export function emptyAnswer(id: string, model: string): Answer {
  return {
    id,
    role: 'assistant',
    model,
    content: '',
    reasoning: '',
    toolCalls: [],
    activity: [],
    state: 'running',
    requestId: undefined,
    runningCost: undefined,
    finishReason: undefined,
    error: undefined,
  }
}

export function isRunning({ lanes }: Pick<Conversation, 'lanes'>): boolean {
  return lanes.some(laneIsRunning)
}

export function laneIsRunning({ messages }: Lane): boolean {
  const last = messages.at(-1)
  return last?.role === 'assistant' && (last.state === 'running' || last.state === 'stopping')
}

/** The model waits for the results of its tool calls. */
export function waitsForResults({ messages }: Lane): boolean {
  const last = messages.at(-1)
  return last?.role === 'assistant' && last.state === 'done' && last.toolCalls.length > 0
}

export function changeLane(conversation: Conversation, at: number, change: (lane: Lane) => Lane): Conversation {
  const lanes = conversation.lanes.map((lane, index) => (index === at ? change(lane) : lane))
  return { ...conversation, lanes }
}

/** Changes a message wherever it is: a message of the user is in every lane under the same id. */
export function changeMessage(
  conversation: Conversation,
  id: string,
  change: (message: Message) => Message | undefined,
): Conversation {
  const lanes = conversation.lanes.map((lane) => ({
    ...lane,
    messages: lane.messages.flatMap((message) => (message.id === id ? (change(message) ?? []) : message)),
  }))
  return { ...conversation, lanes }
}

export function changeAnswer(conversation: Conversation, id: string, change: (answer: Answer) => Answer): Conversation {
  return changeMessage(conversation, id, (message) => (message.role === 'assistant' ? change(message) : message))
}

/** Names the request of an answer, in the answer and in its lane: lanes move when one is closed. */
export function addRequest(conversation: Conversation, answerId: string, requestId: string): Conversation {
  const { lanes } = changeAnswer(conversation, answerId, (answer) => ({ ...answer, requestId }))
  return {
    ...conversation,
    lanes: lanes.map((lane) =>
      lane.messages.some(({ id }) => id === answerId) ? { ...lane, requestIds: [...lane.requestIds, requestId] } : lane,
    ),
  }
}

/** The lane up to a message of the user and with it, or up to an answer and without it: what that answer answers. */
export function cutAfterQuestion(lane: Lane, id: string): Lane {
  const at = lane.messages.findIndex((message) => message.id === id)
  if (at === -1) return lane
  return { ...lane, messages: lane.messages.slice(0, lane.messages[at]!.role === 'user' ? at + 1 : at) }
}

/** Adds a second lane with the same messages. Its copies of earlier answers cost nothing, so they name no request. */
export function addLane(conversation: Conversation, model: string, newId: () => string): Conversation {
  if (conversation.lanes.length >= lanesMax) return conversation
  const messages = conversation.lanes[0]!.messages.map((message) =>
    message.role === 'user' ? message : { ...message, id: newId(), requestId: undefined, runningCost: undefined },
  )
  return { ...conversation, lanes: [...conversation.lanes, { model, messages, requestIds: [] }] }
}

export function closeLane(conversation: Conversation, at: number): Conversation {
  return {
    ...conversation,
    lanes: conversation.lanes.filter((_, index) => index !== at),
    pastRequestIds: [...conversation.pastRequestIds, ...(conversation.lanes[at]?.requestIds ?? [])],
  }
}

/** Marks answers that streamed when the page was closed as stopped. */
export function interruptRunning(conversation: Conversation): Conversation {
  const lanes = conversation.lanes.map((lane) => ({
    ...lane,
    messages: lane.messages.map((message) =>
      message.role === 'assistant' && (message.state === 'running' || message.state === 'stopping')
        ? { ...message, state: 'interrupted' as const, toolCalls: [] }
        : message,
    ),
  }))
  return { ...conversation, lanes }
}
