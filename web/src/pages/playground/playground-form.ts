// What the playground sends, made from what its form holds.

export type Message = { readonly role: 'user' | 'assistant'; readonly content: string }

export type PlaygroundForm = {
  readonly model: string
  readonly keyId: string
  readonly system: string
  readonly messages: readonly Message[]
  /** As typed; empty is the model's own. */
  readonly temperature: string
  readonly maxTokens: string
  readonly search: boolean
  readonly stream: boolean
}

export const emptyForm: Omit<PlaygroundForm, 'model' | 'keyId'> = {
  system: '',
  messages: [{ role: 'user', content: '' }],
  temperature: '',
  maxTokens: '1024',
  search: false,
  stream: true,
}

export type PlaygroundBody = {
  readonly model: string
  readonly messages: readonly { readonly role: string; readonly content: string }[]
  readonly [parameter: string]: unknown
}

/** Exactly the body of the call: the same for the quote, for sending, and for the code to copy. */
export function bodyOf(form: PlaygroundForm): PlaygroundBody {
  const system = form.system.trim() === '' ? [] : [{ role: 'system', content: form.system }]
  const messages = form.messages.filter(({ content }) => content.trim() !== '')
  return {
    model: form.model,
    messages: [...system, ...messages],
    ...(form.maxTokens !== '' && { max_tokens: Number(form.maxTokens) }),
    ...(form.temperature !== '' && { temperature: Number(form.temperature) }),
    ...(form.stream && { stream: true }),
    web_search: form.search,
    web_fetch: form.search,
  }
}

export function formProblem(form: PlaygroundForm): string | undefined {
  if (form.keyId === '') return 'Choose a key to pay with.'
  // An answer asks for nothing: without a new message the whole conversation would be paid for again.
  const last = form.messages.at(-1)
  if (last?.role !== 'user' || last.content.trim() === '') return 'Enter a message.'
  if (form.maxTokens !== '' && !/^[1-9]\d{0,6}$/.test(form.maxTokens))
    return 'Max tokens must be a whole number above 0.'
  const temperature = Number(form.temperature)
  if (form.temperature !== '' && !(temperature >= 0 && temperature <= 2)) return 'Temperature must be from 0 to 2.'
  return undefined
}
