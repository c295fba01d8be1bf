import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import type { AIMessageChunk, UsageMetadata } from '@langchain/core/messages'
import { ChatOpenAICompletions } from '@langchain/openai'
import { Agent, OpenAIProvider, Runner } from '@openai/agents'
import { generateText, type LanguageModel, streamText } from 'ai'
import OpenAI from 'openai'
import { question, user } from './conversations.ts'

/** Where a client asks. */
export type Place = {
  readonly baseURL: string
  readonly apiKey: string
  readonly model: string
  readonly maxTokens: number
}

/** What a client says of an answer. */
export type ReadAnswer = {
  readonly text: string
  readonly inputTokens: number | undefined
  readonly outputTokens: number | undefined
}

/**
 * The core of the client suites, for a provider that cannot be told what to say: one question by each client, buffered, then streamed.
 * Retries are off: an answer that a client would ask for again is a failure.
 */
export const coreOfClients: Readonly<Record<string, (place: Place) => Promise<readonly ReadAnswer[]>>> = {
  'openai SDK': byOpenAi,
  'AI SDK, OpenAI': (place) => {
    const { baseURL, apiKey, model } = place
    return byAiSdk(place, createOpenAI({ baseURL, apiKey }).chat(model))
  },
  'AI SDK, OpenAI-compatible': (place) => {
    const { baseURL, apiKey, model } = place
    return byAiSdk(place, createOpenAICompatible({ name: 'penny', baseURL, apiKey, includeUsage: true })(model))
  },
  LangChain: byLangChain,
  'OpenAI Agents SDK': byAgents,
}

async function byOpenAi({ baseURL, apiKey, model, maxTokens }: Place): Promise<readonly ReadAnswer[]> {
  const { completions } = new OpenAI({ baseURL, apiKey, maxRetries: 0 }).chat
  const asked = { model, messages: [user(question)], max_tokens: maxTokens }
  const buffered = await completions.create(asked)
  const streamed = completions.stream({ ...asked, stream_options: { include_usage: true } })
  return [buffered, await streamed.finalChatCompletion()].map(({ choices, usage }) => ({
    text: choices[0]!.message.content ?? '',
    inputTokens: usage?.prompt_tokens,
    outputTokens: usage?.completion_tokens,
  }))
}

async function byAiSdk({ maxTokens }: Place, model: LanguageModel): Promise<readonly ReadAnswer[]> {
  const asked = { model, prompt: question, maxOutputTokens: maxTokens, maxRetries: 0 }
  const buffered = await generateText(asked)
  const streamed = streamText(asked)
  const answers = [buffered, { text: await streamed.text, usage: await streamed.usage }]
  return answers.map(({ text, usage: { inputTokens, outputTokens } }) => ({ text, inputTokens, outputTokens }))
}

async function byLangChain({ baseURL, apiKey, model, maxTokens }: Place): Promise<readonly ReadAnswer[]> {
  const chat = new ChatOpenAICompletions({ model, apiKey, maxTokens, maxRetries: 0, configuration: { baseURL } })
  const buffered = await chat.invoke(question)
  const chunks: AIMessageChunk[] = await Array.fromAsync(await chat.stream(question))
  const streamed = chunks.reduce((whole, chunk) => whole.concat(chunk))
  return [buffered, streamed].map((message) => {
    const usage = message.usage_metadata as UsageMetadata | undefined
    return { text: message.text, inputTokens: usage?.input_tokens, outputTokens: usage?.output_tokens }
  })
}

async function byAgents({ baseURL, apiKey, model, maxTokens }: Place): Promise<readonly ReadAnswer[]> {
  const openAIClient = new OpenAI({ apiKey, baseURL, maxRetries: 0 })
  const modelProvider = new OpenAIProvider({ openAIClient, useResponses: false })
  const runner = new Runner({ modelProvider, tracingDisabled: true })
  const agent = new Agent({ name: 'Penny', instructions: 'Answer briefly.', model, modelSettings: { maxTokens } })
  const buffered = await runner.run(agent, question)
  const streamed = await runner.run(agent, question, { stream: true })
  await streamed.completed
  return [buffered, streamed].map(({ finalOutput, rawResponses: [response] }) => ({
    text: finalOutput ?? '',
    inputTokens: response?.usage.inputTokens,
    outputTokens: response?.usage.outputTokens,
  }))
}
