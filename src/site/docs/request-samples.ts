import type { DocumentedRoute, Operation } from './api-reference.ts'
import { exampleOf } from './examples.ts'

type Sample = { readonly language: 'sh' | 'python' | 'js' | 'go'; readonly code: string }

/** What a stream looks like; the document has the other examples. */
export const streamSamples: Readonly<Record<string, string>> = {
  createChatCompletion: `data: {"id":"chatcmpl-0198f0c2…","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"chatcmpl-0198f0c2…","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"A coin"},"finish_reason":null}]}

data: {"id":"chatcmpl-0198f0c2…","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]`,
}

const completionSamples: readonly Sample[] = [
  {
    language: 'python',
    code: `from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
answer = client.chat.completions.create(
    model="gpt-5.6-terra",
    messages=[{"role": "user", "content": "What is a penny?"}],
    max_tokens=400,
)
print(answer.choices[0].message.content)`,
  },
  {
    language: 'js',
    code: `import OpenAI from 'openai'

const client = new OpenAI() // reads OPENAI_BASE_URL and OPENAI_API_KEY
const answer = await client.chat.completions.create({
  model: 'gpt-5.6-terra',
  messages: [{ role: 'user', content: 'What is a penny?' }],
  max_tokens: 400,
})
console.log(answer.choices[0].message.content, answer.usage.cost)`,
  },
  {
    language: 'go',
    code: `client := openai.NewClient() // github.com/openai/openai-go: reads OPENAI_BASE_URL and OPENAI_API_KEY
answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
	Model:     "gpt-5.6-terra",
	Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is a penny?")},
	MaxTokens: openai.Int(400),
})`,
  },
]

/** The call in several languages. `$OPENAI_BASE_URL` ends in `/v1`; `$PENNY_URL` is the same address without it. */
export function requestSamples(route: DocumentedRoute, body: unknown): readonly Sample[] {
  const curl: Sample = { language: 'sh', code: curlOf(route, body) }
  if (route.operation.operationId === 'createChatCompletion') return [curl, ...completionSamples]
  const isOnlyForSessions = headerOf(route) === undefined && schemesOf(route.operation).includes('session')
  return isOnlyForSessions ? [curl] : [curl, pythonOf(route, body), nodeOf(route, body)]
}

function curlOf(route: DocumentedRoute, body: unknown): string {
  const { variable, path } = addressOf(route)
  const header = headerOf(route)
  const lines = [
    `curl ${route.method === 'GET' ? '' : `-X ${route.method} `}"$${variable}${path}"`,
    ...(header ? [`-H "${header.name}: ${header.prefix}$${header.variable}"`] : []),
    ...(!header && schemesOf(route.operation).includes('session') ? ['-b "__Host-penny=$SESSION"'] : []),
    ...(body === undefined
      ? []
      : ['-H "Content-Type: application/json"', `-d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`]),
  ]
  return lines.join(' \\\n  ')
}

function pythonOf(route: DocumentedRoute, body: unknown): Sample {
  const { variable, path } = addressOf(route)
  const header = headerOf(route)
  const prefix = header?.prefix ? `"${header.prefix}" + ` : ''
  const headers = [
    ...(header ? [`"${header.name}": ${prefix}os.environ["${header.variable}"]`] : []),
    ...(body === undefined ? [] : ['"Content-Type": "application/json"']),
  ]
  const given = [
    `os.environ["${variable}"] + "${path}"`,
    ...(body === undefined ? [] : [`json.dumps(${pythonValue(body)}).encode()`]),
    ...(headers.length === 0 ? [] : [`headers={${headers.join(', ')}}`]),
    ...(route.method === 'GET' ? [] : [`method="${route.method}"`]),
  ]
  return {
    language: 'python',
    code: `import json, os, urllib.request

request = urllib.request.Request(
${given.map((argument) => `    ${argument},\n`).join('')})
with urllib.request.urlopen(request) as response:
    print(json.load(response))`,
  }
}

function nodeOf(route: DocumentedRoute, body: unknown): Sample {
  const { variable, path } = addressOf(route)
  const header = headerOf(route)
  const prefix = header?.prefix ? `'${header.prefix}' + ` : ''
  const headers = [
    ...(header ? [`'${header.name}': ${prefix}env.${header.variable}`] : []),
    ...(body === undefined ? [] : ["'Content-Type': 'application/json'"]),
  ]
  const options = [
    ...(route.method === 'GET' ? [] : [`method: '${route.method}'`]),
    ...(headers.length === 0 ? [] : [`headers: { ${headers.join(', ')} }`]),
    ...(body === undefined ? [] : [`body: JSON.stringify(${JSON.stringify(body)})`]),
  ]
  const given = options.length === 0 ? '' : `, {\n${options.map((option) => `  ${option},\n`).join('')}}`
  return {
    language: 'js',
    code: `import { env } from 'node:process'

const response = await fetch(env.${variable} + '${path}'${given})
console.log(await response.json())`,
  }
}

/** The variable with the base address, and the path after it, with example values for its parameters. */
function addressOf({ path, operation }: DocumentedRoute): { readonly variable: string; readonly path: string } {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const schema = operation.parameters?.find((candidate) => candidate.name === name)?.schema
    return path.startsWith('/v1/models') ? 'gpt-5.6-terra' : String(schema && exampleOf(schema, {}, name))
  })
  return path.startsWith('/v1/')
    ? { variable: 'OPENAI_BASE_URL', path: filled.slice('/v1'.length) }
    : { variable: 'PENNY_URL', path: filled }
}

/** The credentials that the route takes, one of them. None: it is public. */
export function schemesOf({ security = [] }: Operation): readonly string[] {
  return security.flatMap((way) => Object.keys(way))
}

/** The header that a program sends, with its value in a variable. Undefined for public routes and those for a session only. */
function headerOf({ operation }: DocumentedRoute): CredentialHeader | undefined {
  return schemesOf(operation)
    .map((scheme) => credentialHeaders[scheme])
    .find((header) => header !== undefined)
}

type CredentialHeader = { readonly name: string; readonly prefix: string; readonly variable: string }

const credentialHeaders: Readonly<Record<string, CredentialHeader>> = {
  key: { name: 'Authorization', prefix: 'Bearer ', variable: 'OPENAI_API_KEY' },
  management_key: { name: 'Authorization', prefix: 'Bearer ', variable: 'PENNY_MANAGEMENT_KEY' },
  payment: { name: 'PAYMENT-SIGNATURE', prefix: '', variable: 'X402_PAYMENT' },
  signIn: { name: 'SIGN-IN-WITH-X', prefix: '', variable: 'X402_SIGN_IN' },
}

function pythonValue(value: unknown): string {
  return JSON.stringify(value)
    .replaceAll(/\btrue\b/g, 'True')
    .replaceAll(/\bfalse\b/g, 'False')
    .replaceAll(/\bnull\b/g, 'None')
}
