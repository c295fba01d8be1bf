import type { Session } from '../api/shapes.ts'

// Ready-made code for one call, in the languages people start with. The code must run unchanged.

export type Language = 'curl' | 'python' | 'node' | 'go' | 'ai-sdk' | 'cli'

export const languages: readonly (readonly [Language, string])[] = [
  ['curl', 'curl'],
  ['python', 'Python'],
  ['node', 'Node'],
  ['go', 'Go'],
  ['ai-sdk', 'AI SDK'],
  ['cli', 'CLI'],
]

export type Call = {
  /** Ends in /v1. */
  readonly baseUrl: string
  /** The secret, its hint, or the name of a variable such as `$OPENAI_API_KEY`. */
  readonly apiKey: string
  readonly body: ChatBody
}

export type ChatBody = {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly [parameter: string]: unknown
}

export type ChatMessage = {
  readonly role: string
  readonly content: string | null
  readonly [member: string]: unknown
}

/** Parameters that OpenAI does not have: the Python library needs them in `extra_body`. */
const ownParameters = new Set(['web_search', 'web_fetch'])

/** The call to begin with, to the model that this installation names first. */
export function firstCall(session: Pick<Session, 'base_url' | 'default_model'>, apiKey: string): Call {
  const messages = [{ role: 'user', content: 'What is a penny?' }]
  return { baseUrl: session.base_url, apiKey, body: { model: session.default_model, messages } }
}

export function codeFor(language: Language, call: Call): string {
  return { curl, python, node, go, 'ai-sdk': aiSdk, cli }[language](call)
}

function curl({ baseUrl, apiKey, body }: Call): string {
  return `curl ${baseUrl}/chat/completions \\
  -H "Authorization: Bearer ${apiKey}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify(body, null, 2).replaceAll("'", `'\\''`)}'`
}

function python({ baseUrl, apiKey, body }: Call): string {
  const entries = Object.entries(body)
  const usual = entries.filter(([name]) => !ownParameters.has(name))
  const own = entries.filter(([name]) => ownParameters.has(name))
  const lines = usual.map(([name, value]) => `    ${name}=${pythonValue(value, 4)},`)
  if (own.length > 0) lines.push(`    extra_body=${pythonValue(Object.fromEntries(own), 4)},`)
  const read =
    body.stream === true
      ? 'for chunk in answer:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="")'
      : 'print(answer.choices[0].message.content)'
  const variable = variableOf(apiKey)
  const key = variable === undefined ? JSON.stringify(apiKey) : `os.environ[${JSON.stringify(variable)}]`
  return `${variable === undefined ? '' : 'import os\n'}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl)}, api_key=${key})
answer = client.chat.completions.create(
${lines.join('\n')}
)
${read}`
}

function node({ baseUrl, apiKey, body }: Call): string {
  const read =
    body.stream === true
      ? "for await (const chunk of answer) process.stdout.write(chunk.choices[0]?.delta.content ?? '')"
      : 'console.log(answer.choices[0].message.content)'
  return `import OpenAI from 'openai'

const client = new OpenAI({ baseURL: '${baseUrl}', apiKey: ${nodeKey(apiKey)} })
const answer = await client.chat.completions.create(${JSON.stringify(body, null, 2)})
${read}`
}

/** The body as it is: the SDK's own types do not know every parameter. */
function go({ baseUrl, apiKey, body }: Call): string {
  const variable = variableOf(apiKey)
  const json = JSON.stringify(body, null, 2).replaceAll('`', '` + "`" + `')
  const read =
    body.stream === true
      ? `	stream := client.Chat.Completions.NewStreaming(context.Background(), params)
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 {
			fmt.Print(choices[0].Delta.Content)
		}
	}
	if err := stream.Err(); err != nil {
		panic(err)
	}`
      : `	answer, err := client.Chat.Completions.New(context.Background(), params)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)`
  return `package main

import (
	"context"
	"encoding/json"
	"fmt"
${variable === undefined ? '' : '	"os"\n'}
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

const body = \`${json}\`

func main() {
	client := openai.NewClient(
		option.WithBaseURL(${JSON.stringify(baseUrl)}),
		option.WithAPIKey(${variable === undefined ? JSON.stringify(apiKey) : `os.Getenv(${JSON.stringify(variable)})`}),
	)
	params := param.Override[openai.ChatCompletionNewParams](json.RawMessage(body))
${read}
}`
}

function aiSdk({ baseUrl, apiKey, body }: Call): string {
  return `import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText } from 'ai'

const penny = createOpenAICompatible({ name: 'penny', baseURL: '${baseUrl}', apiKey: ${nodeKey(apiKey)} })
const { text } = await generateText({
  model: penny('${body.model}'),
  prompt: ${JSON.stringify(body.messages.at(-1)?.content ?? '')},
})
console.log(text)`
}

function cli({ baseUrl, apiKey, body }: Call): string {
  return `export OPENAI_BASE_URL="${baseUrl}"
export OPENAI_API_KEY="${apiKey}"
# Tools that read these variables need no other setup, for example:
openai api chat.completions.create -m ${body.model} -g user ${JSON.stringify(body.messages.at(-1)?.content ?? '')}`
}

/** The name in `$OPENAI_API_KEY`. A shell expands it by itself; code in other languages must read it. */
function variableOf(apiKey: string): string | undefined {
  return apiKey.startsWith('$') ? apiKey.slice(1) : undefined
}

function nodeKey(apiKey: string): string {
  const variable = variableOf(apiKey)
  return variable === undefined ? `'${apiKey}'` : `process.env.${variable}`
}

function pythonValue(value: unknown, indent: number): string {
  if (value === true) return 'True'
  if (value === false) return 'False'
  if (value === null || value === undefined) return 'None'
  if (Array.isArray(value)) return `[${value.map((item) => pythonValue(item, indent)).join(', ')}]`
  if (typeof value !== 'object') return JSON.stringify(value)
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)}: ${pythonValue(member, indent)}`,
  )
  return `{${members.join(', ')}}`
}
